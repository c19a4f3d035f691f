// Four equations with ASGarD, for callers in C.
// - f_t + sum v_i df/dx_i = s on a periodic box, by explicit steps. The solution is sin(omega t)
//   times a cosine or a sine of each coordinate; s has d + 1 separable terms.
// - f_t = Laplacian f on the unit square, by Crank-Nicolson. The solution is
//   exp(-2 pi^2 t) cos(pi x) cos(pi y), its values on the boundary are given.
// - f_t + v f_x + E f_v = 0 with E of Poisson's equation, two streams, by explicit steps.
// - f_t = C(f), collisions of Lenard and Bernstein that mix two Maxwellians, by implicit steps.
#include <memory>
#include <string>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "asgard.hpp"

namespace {

using Values = std::vector<double>;

struct Wave {
  double number;
  bool is_sine;

  // The derivative of order 0 or 1, times `scale`.
  asgard::sfixed_func1d<double> function(int order, double scale) const {
    const Wave w = *this;
    return [=](Values const &x, Values &fx) -> void {
      for (size_t i = 0; i < x.size(); i++) {
        double const arg = w.number * x[i];
        double const cosine = std::cos(arg), sine = std::sin(arg);
        fx[i] = scale * (order == 0 ? (w.is_sine ? sine : cosine)
                                    : w.number * (w.is_sine ? cosine : -sine));
      }
    };
  }
};

struct Problem {
  std::unique_ptr<asgard::discretization_manager<double>> disc;
  Values x, y;
};

asgard::pde_scheme<double> make_pde(int dims, int level, int degree, double const *half,
                                    double const *speed, double const *numbers,
                                    int const *is_sine, double omega, double dt) {
  std::string const words = "-l " + std::to_string(level) + " -d " + std::to_string(degree) +
                            " -s rk3 -n 1000000";
  asgard::prog_opts options = asgard::make_opts(words);
  options.default_dt = dt;
  std::vector<asgard::domain_range> ranges;
  for (int i = 0; i < dims; i++) ranges.push_back({-half[i], half[i]});
  asgard::pde_scheme<double> pde(options, asgard::pde_domain<double>(ranges));

  std::vector<asgard::term_1d<double>> ops(dims, asgard::term_identity{});
  std::vector<asgard::sfixed_func1d<double>> waves;
  for (int i = 0; i < dims; i++) waves.push_back(Wave{numbers[i], is_sine[i] != 0}.function(0, 1));
  auto const sine = [=](double t) -> double { return std::sin(omega * t); };
  auto const cosine = [=](double t) -> double { return omega * std::cos(omega * t); };
  pde.add_initial(asgard::separable_func<double>(waves, sine));
  pde += asgard::source<double>(asgard::separable_func<double>(waves, cosine));
  for (int i = 0; i < dims; i++) {
    ops[i] = asgard::term_div<double>(speed[i], asgard::flux_type::upwind,
                                      asgard::boundary_type::periodic);
    pde += asgard::term_md<double>(ops);
    ops[i] = asgard::term_identity{};
    auto derived = waves;
    derived[i] = Wave{numbers[i], is_sine[i] != 0}.function(1, speed[i]);
    pde += asgard::source<double>(asgard::separable_func<double>(derived, sine));
  }
  return pde;
}

asgard::pde_scheme<double> make_diffusion_pde(std::string const &words, double dt) {
  double const pi = std::acos(-1.0);
  asgard::prog_opts options = asgard::make_opts(words + " -s cn -n 1000000");
  options.default_dt = dt;
  std::vector<asgard::domain_range> const ranges(2, {0, 1});
  asgard::pde_scheme<double> pde(options, asgard::pde_domain<double>(ranges));

  std::vector<asgard::sfixed_func1d<double>> const waves(2, Wave{pi, false}.function(0, 1));
  asgard::separable_func<double> const exact(
      waves, [=](double t) -> double { return std::exp(-2 * pi * pi * t); });
  pde.add_initial(exact);
  // the chain of one-dimensional operators is its faster form
  asgard::term_1d<double> const second({
      asgard::term_div<double>(-1, asgard::flux_type::upwind),
      asgard::term_grad<double>(1, asgard::flux_type::upwind, asgard::boundary_type::bothsides),
  });
  for (int i = 0; i < 2; i++) {
    std::vector<asgard::term_1d<double>> ops(2, asgard::term_identity{});
    ops[i] = second;
    asgard::term_md<double> term(ops);
    asgard::separable_func<double> left = exact, right = exact;
    left.set(asgard::dimension_id{i}, 1);
    right.set(asgard::dimension_id{i}, -1);
    term += asgard::left_boundary_flux<double>{left};
    term += asgard::right_boundary_flux<double>{right};
    pde += term;
  }
  return pde;
}

asgard::pde_scheme<double> make_two_stream_pde(std::string const &words, double dt) {
  double const top = 2 * std::acos(-1.0);
  asgard::prog_opts options = asgard::make_opts(words + " -n 1000000");
  options.default_dt = dt;
  asgard::pde_domain<double> const domain(asgard::position_dims{1}, asgard::velocity_dims{1},
                                          {{-top, top}, {-top, top}});
  asgard::pde_scheme<double> pde(options, domain);
  auto const positive = [](Values const &x, Values &y) -> void {
    for (size_t i = 0; i < x.size(); i++) y[i] = std::max(0.0, x[i]);
  };
  auto const negative = [](Values const &x, Values &y) -> void {
    for (size_t i = 0; i < x.size(); i++) y[i] = std::min(0.0, x[i]);
  };
  auto const upwind = asgard::flux_type::upwind, downwind = asgard::flux_type::downwind;
  auto const periodic = asgard::boundary_type::periodic, fixed = asgard::boundary_type::bothsides;
  using Ops = std::vector<asgard::term_1d<double>>;
  pde += asgard::term_md<double>(Ops{asgard::term_div<double>(1, upwind, periodic),
                                     asgard::term_volume<double>(positive)});
  pde += asgard::term_md<double>(Ops{asgard::term_div<double>(1, downwind, periodic),
                                     asgard::term_volume<double>(negative)});
  pde += asgard::term_md<double>(Ops{asgard::volume_electric<double>(positive),
                                     asgard::term_div<double>(1, upwind, fixed)});
  pde += asgard::term_md<double>(Ops{asgard::volume_electric<double>(negative),
                                     asgard::term_div<double>(1, downwind, fixed)});
  auto const shape_x = [](Values const &x, double, Values &fx) -> void {
    for (size_t i = 0; i < x.size(); i++) fx[i] = 1 - 0.5 * std::cos(0.5 * x[i]);
  };
  auto const shape_v = [](Values const &v, double, Values &fv) -> void {
    double const scale = 1 / std::sqrt(std::acos(-1.0));
    for (size_t i = 0; i < v.size(); i++) fv[i] = scale * v[i] * v[i] * std::exp(-v[i] * v[i]);
  };
  pde.add_initial(asgard::separable_func<double>({shape_x, shape_v}));
  return pde;
}

asgard::pde_scheme<double> make_relaxation_pde(std::string const &words, double dt, double nu) {
  asgard::prog_opts options = asgard::make_opts(words + " -n 1000000");
  options.default_dt = dt;
  asgard::pde_domain<double> const domain(asgard::position_dims{1}, asgard::velocity_dims{1},
                                          {{-0.5, 0.5}, {-8, 12}});
  asgard::pde_scheme<double> pde(options, domain);
  pde += asgard::operators::lenard_bernstein_collisions{nu};
  double const centres[] = {-1, 2};
  for (double const centre : centres) {
    asgard::separable_func<double> own(Values{0.5, 1});
    own.set(asgard::dimension_id{1}, [=](Values const &v, Values &fv) -> void {
      double const scale = 1 / std::sqrt(std::acos(-1.0));  // of the temperature 1/2
      for (size_t i = 0; i < v.size(); i++)
        fv[i] = scale * std::exp(-(v[i] - centre) * (v[i] - centre));
    });
    pde.add_initial(own);
  }
  return pde;
}

// The problem of what `make` returns, null if ASGarD refuses it.
template <class Make>
void *hold(Make make) {
  try {
    auto made = std::make_unique<Problem>();
    made->disc = std::make_unique<asgard::discretization_manager<double>>(
        make(), asgard::verbosity_level::quiet);
    made->x.assign(made->disc->num_dof(), 0);
    made->y.assign(made->disc->num_dof(), 0);
    return made.release();
  } catch (std::exception const &) {
    return nullptr;
  }
}

}  // namespace

extern "C" {

void *make_problem(int dims, int level, int degree, double const *half, double const *speed,
                   double const *numbers, int const *is_sine, double omega, double dt) {
  return hold([&] {
    return make_pde(dims, level, degree, half, speed, numbers, is_sine, omega, dt);
  });
}

// Options as ASGarD's programs take them: levels, degree, solver.
void *make_diffusion(char const *words, double dt) {
  return hold([&] { return make_diffusion_pde(words, dt); });
}

// Options as for `make_diffusion`, with the method; ours are "two-stream" and "relaxation-1x1v".
void *make_two_stream(char const *words, double dt) {
  return hold([&] { return make_two_stream_pde(words, dt); });
}

void *make_relaxation(char const *words, double dt, double nu) {
  return hold([&] { return make_relaxation_pde(words, dt, nu); });
}

void free_problem(void *problem) { delete static_cast<Problem *>(problem); }

long unknowns(void *problem) { return static_cast<Problem *>(problem)->disc->num_dof(); }

// Where the argument and the result of `right_hand_side` are.
double *argument(void *problem) { return static_cast<Problem *>(problem)->x.data(); }
double const *result(void *problem) { return static_cast<Problem *>(problem)->y.data(); }
double const *state(void *problem) {
  return static_cast<Problem *>(problem)->disc->current_state().data();
}

// y = A x + s(t).
void right_hand_side(void *problem, double t) {
  Problem &own = *static_cast<Problem *>(problem);
  own.disc->ode_rhs(t, own.x, own.y);
}

// Steps from wherever the state is.
void advance(void *problem, long steps) {
  static_cast<Problem *>(problem)->disc->advance_time(steps);
}

void set_threads([[maybe_unused]] int count) {
#ifdef _OPENMP
  omp_set_num_threads(count);
#endif
}
}
