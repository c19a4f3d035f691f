"""Changes of a file's structure through h5py, with its hash put right again.

`FORBIDDEN` are what the schema rules out, whatever the content: such a file is to be refused.
`PERMITTED` lay the same content out in another way: such a file is to be read as before.
"""

import h5py
import numpy as np
from crafted_files import edit, stored_hash
from h5py import h5d, h5p, h5s, h5t, h5z

FORBIDDEN = []
PERMITTED = []


def restructure(path, image, rng, traps, *, permitted):
    """Write the image, changed; return the name of the change."""
    choices = PERMITTED if permitted else FORBIDDEN
    change = choices[int(rng.integers(len(choices)))]
    path.write_bytes(image)

    def change_and_reseal(file):
        change(file, rng, traps)
        reseal(file)

    edit(path, change_and_reseal)
    return change.__name__


def reseal(file):
    """Put the content hash right, where there is content that has one."""
    try:
        attributes = {name: _plain(value) for name, value in file.attrs.items()}
        declared = attributes.pop("content_hash")
        datasets = {}
        for path in leaves(file):
            if not path.startswith("provenance/") and file[path].nbytes < 1 << 24:
                datasets[path] = _plain(file[path][()])
        hashed = stored_hash(attributes, datasets)
    except (KeyError, TypeError, ValueError, OSError, AttributeError):
        return  # links that lead nowhere, kinds that no hash is defined for
    if hashed != declared:
        file.attrs.modify("content_hash", np.bytes_(hashed))


def leaves(group, prefix="", depth=8):
    """Paths of all datasets, through whatever links there are."""
    for name in group:
        link = group.get(name, getlink=True)
        try:
            item = group[name]
        except (KeyError, OSError):
            assert not isinstance(link, h5py.HardLink)
            continue
        if isinstance(item, h5py.Dataset):
            yield prefix + name
        elif isinstance(item, h5py.Group) and depth:
            yield from leaves(item, f"{prefix}{name}/", depth - 1)


def _plain(value):
    """A value as `stored_hash` takes it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "SO":
            return [text.decode() for text in value.tolist()]
        return value
    return value if isinstance(value, str) else value.item()


def forbidden(change):
    FORBIDDEN.append(change)
    return change


def permitted(change):
    PERMITTED.append(change)
    return change


def a_dataset(file, rng, kinds="fiS"):
    """Any dataset with elements."""
    paths = [p for p in leaves(file) if file[p].size and file[p].dtype.kind in kinds]
    return paths[int(rng.integers(len(paths)))]


def a_group(file, rng):
    groups = [""]
    file.visititems(lambda name, item: groups.append(name) if is_group(item) else None)
    return groups[int(rng.integers(len(groups)))]


def is_group(item):
    return isinstance(item, h5py.Group)


def recreate(file, path, **options):
    """Store a dataset anew, by default as it is."""
    dataset = file[path]
    value, datatype = dataset[()], dataset.dtype
    chunks = dataset.chunks or (tuple(dataset.shape) if dataset.size else None)
    given = {"data": value, "dtype": datatype, "chunks": chunks, "fletcher32": True, **options}
    del file[path]
    return file.create_dataset(path, **{k: v for k, v in given.items() if v is not None})


# ---- links: every one of them leads to the right content, if it is followed


@forbidden
def soft_link(file, rng, traps):
    path = a_dataset(file, rng)
    file.move(path, f"{path}_moved")
    file[path] = h5py.SoftLink(f"/{path}_moved")


@forbidden
def dangling_link(file, rng, traps):
    file[f"{a_group(file, rng)}/link"] = h5py.SoftLink("/nowhere")


@forbidden
def external_link(file, rng, traps):
    path = a_dataset(file, rng)
    del file[path]
    file[path] = h5py.ExternalLink(traps.name_of("sound.h5", rng), path)


@forbidden
def external_link_to_a_group(file, rng, traps):
    group = a_group(file, rng) or "more"
    if group in file:
        del file[group]
    file[group] = h5py.ExternalLink(traps.name_of("sound.h5", rng), group)


@forbidden
def external_link_to_text(file, rng, traps):
    file[f"{a_group(file, rng)}/link"] = h5py.ExternalLink(traps.name_of("secret.txt", rng), "/")


@forbidden
def external_storage(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    dataset = file[path]
    shape, datatype, size = dataset.shape, dataset.dtype, dataset.nbytes
    name = traps.name_of("raw.bin", rng)
    traps.write("raw.bin", dataset[()].tobytes())
    del file[path]
    file.create_dataset(path, shape, datatype, external=[(name, 0, size)])


@forbidden
def virtual_dataset(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    dataset = file[path]
    layout = h5py.VirtualLayout(shape=dataset.shape, dtype=dataset.dtype)
    layout[...] = h5py.VirtualSource(traps.name_of("sound.h5", rng), path, shape=dataset.shape)
    del file[path]
    file.create_virtual_dataset(path, layout)


@forbidden
def virtual_dataset_of_the_same_file(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    dataset = file[path]
    layout = h5py.VirtualLayout(shape=dataset.shape, dtype=dataset.dtype)
    file.move(path, f"{path}_moved")
    layout[...] = h5py.VirtualSource(".", f"{path}_moved", shape=dataset.shape)
    file.create_virtual_dataset(path, layout)


@forbidden
def second_name(file, rng, traps):
    file[f"{a_group(file, rng)}/again"] = file[a_dataset(file, rng)]


@forbidden
def cycle(file, rng, traps):
    file[f"{a_group(file, rng)}/loop"] = file[a_group(file, rng) or "/"]


@forbidden
def deep_tree(file, rng, traps):
    file.create_group(f"{a_group(file, rng)}/" + "/".join("abcdefgh"))


@forbidden
def many_objects(file, rng, traps):
    group = file[a_group(file, rng) or "/"]
    for k in range(257):
        group.create_group(f"g{k}")


@forbidden
def odd_name(file, rng, traps):
    names = ("..", ".. ", "a b", "é", "\x01", "u\n", "a.b", "x" * 300, "-", "%s%n")
    file.move(a_dataset(file, rng), f"{a_group(file, rng)}/{names[rng.integers(len(names))]}")


@forbidden
def name_that_is_not_utf8(file, rng, traps):
    file.id.links.create_soft(b"\xff\xfe", b"/")


# ---- kinds


@forbidden
def another_datatype(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    choices = (">f8", ">i8", "<f2", "<i4", "<u8", "?", "<c16", "i1", np.longdouble)
    datatype = np.dtype(choices[rng.integers(len(choices))])
    with np.errstate(all="ignore"):
        recreate(file, path, data=file[path][()].astype(datatype), dtype=datatype)


@forbidden
def odd_precision(file, rng, traps):
    """A float64 or int64 whose bits mean something else."""
    path = a_dataset(file, rng, "fi")
    is_float = file[path].dtype.kind == "f"
    datatype = (h5t.IEEE_F64LE if is_float else h5t.STD_I64LE).copy()
    if is_float:
        datatype.set_ebias(int(rng.integers(1, 2000)))
    else:
        datatype.set_precision(int(rng.integers(1, 64)))
    low_level(file, path, datatype)


@forbidden
def structured_datatype(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    shape = file[path].shape
    choices = (
        h5py.vlen_dtype(np.float64),
        h5py.string_dtype(),
        h5py.ref_dtype,
        h5py.regionref_dtype,
        np.dtype([("a", "f8"), ("b", "i8")]),
        np.dtype("(3,)f8"),
        np.dtype("V8"),
        h5py.enum_dtype({"a": 1, "b": 2}, basetype="i8"),
    )
    del file[path]
    file.create_dataset(path, shape, dtype=choices[rng.integers(len(choices))])


@forbidden
def nested_variable_length(file, rng, traps):
    inner = h5py.vlen_dtype(h5py.vlen_dtype(np.dtype([("a", h5py.string_dtype())])))
    file.create_dataset(f"{a_group(file, rng)}/extra", (2,), dtype=inner)


@forbidden
def named_datatype(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    file["named"] = file[path].dtype
    low_level(file, path, file["named"].id)
    if rng.random() < 0.5:
        del file["named"]


@forbidden
def space_padded_text(file, rng, traps):
    path = a_dataset(file, rng, "S")
    datatype = h5t.C_S1.copy()
    datatype.set_size(int(file[path].dtype.itemsize))
    datatype.set_strpad(h5t.STR_SPACEPAD)
    low_level(file, path, datatype)


@forbidden
def scalar_or_nothing(file, rng, traps):
    path = a_dataset(file, rng)
    datatype = file[path].dtype
    del file[path]
    if rng.random() < 0.5:
        file.create_dataset(path, data=h5py.Empty(datatype))
    else:
        file.create_dataset(path, (), datatype)


@forbidden
def too_many_dimensions(file, rng, traps):
    path = a_dataset(file, rng)
    recreate(file, path, data=file[path][()].reshape((1,) * 9 + file[path].shape), chunks=True)


@forbidden
def texts_in_two_dimensions(file, rng, traps):
    path = a_dataset(file, rng, "S")
    recreate(file, path, data=file[path][()].reshape(1, -1), chunks=True)


@forbidden
def attribute_below_the_root(file, rng, traps):
    item = a_dataset(file, rng) if rng.random() < 0.5 else a_group(file, rng)
    if item:
        file[item].attrs["unit"] = "m"
    else:
        file.attrs["unit"] = [1.0]


@forbidden
def odd_attribute(file, rng, traps):
    names = [name for name in file.attrs if name != "content_hash"]
    name = names[rng.integers(len(names))]
    choices = (np.zeros(3), "text", b"x" * 5000, h5py.Empty("f8"), np.float32(1.0), np.int32(1))
    choices += (np.array([], "f8"), np.uint64(1), np.complex128(1), np.nan, file.ref, [[b"a"]])
    choice = choices[rng.integers(len(choices))]
    del file.attrs[name]
    file.attrs.create(name, choice)


@forbidden
def many_attributes(file, rng, traps):
    for k in range(65):
        file.attrs[f"more_{k}"] = k


# ---- storage


@forbidden
def no_checksum(file, rng, traps):
    recreate(file, a_dataset(file, rng), fletcher32=None)


@forbidden
def contiguous(file, rng, traps):
    recreate(file, a_dataset(file, rng), fletcher32=None, chunks=None)


@forbidden
def compact(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_layout(h5d.COMPACT)
    value = file[path][()]
    if value.nbytes > 60_000:
        return contiguous(file, rng, traps)
    low_level(file, path, file[path].id.get_type(), properties)
    return None


@forbidden
def another_filter(file, rng, traps):
    if rng.random() < 0.5:
        recreate(file, a_dataset(file, rng), compression="lzf")
        return
    path = a_dataset(file, rng, "fi")
    properties = chunked(file[path])
    properties.set_scaleoffset(h5z.SO_FLOAT_DSCALE if file[path].dtype.kind == "f" else 2, 20)
    properties.set_fletcher32()
    low_level(file, path, file[path].id.get_type(), properties)


@forbidden
def unknown_filter(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    properties = chunked(file[path])
    number = int(rng.choice([257, 307, 32001, 32015, 40000, 65535]))
    properties.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (1, 2))
    properties.set_fletcher32()
    low_level(file, path, file[path].id.get_type(), properties)


@forbidden
def filter_twice(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    properties = chunked(file[path])
    for _ in range(int(rng.integers(2, 20))):
        properties.set_deflate(1)
    properties.set_fletcher32()
    low_level(file, path, file[path].id.get_type(), properties)


@forbidden
def huge_shape(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    datatype = file[path].dtype
    shapes = ((10**12,), (2**32, 2**31 - 1), (2**40, 1, 1), (1, 2**62 // 8), (2**20,) * 3)
    shape = shapes[rng.integers(len(shapes))]
    chunks = tuple(min(length, 100) for length in shape)
    compression = ("gzip", None)[rng.integers(2)]
    del file[path]
    file.create_dataset(
        path, shape, datatype, chunks=chunks, fletcher32=True, compression=compression
    )


@forbidden
def missing_chunks(file, rng, traps):
    """Fill values take the place of what is not there, and they are the right ones."""
    path = a_dataset(file, rng, "fi")
    shape, datatype = file[path].shape, file[path].dtype
    del file[path]
    chunks = tuple(max(1, length // 2) for length in shape)
    file.create_dataset(path, shape, datatype, chunks=chunks, fletcher32=True, fillvalue=1)


@forbidden
def larger_chunks(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    chunks = tuple(length + int(rng.integers(1, 50)) for length in file[path].shape)
    recreate(file, path, chunks=chunks, maxshape=(None,) * len(chunks))


@forbidden
def very_many_chunks(file, rng, traps):
    path = a_dataset(file, rng, "fi")
    datatype = file[path].dtype
    del file[path]
    file.create_dataset(path, (1 << 22,), datatype, chunks=(1,), fletcher32=True)


# ---- the same content in another layout


@permitted
def other_chunks(file, rng, traps):
    path = a_dataset(file, rng)
    chunks = tuple(int(rng.integers(1, length + 1)) for length in file[path].shape)
    recreate(file, path, chunks=chunks)


@permitted
def compressed(file, rng, traps):
    recreate(
        file,
        a_dataset(file, rng),
        compression="gzip",
        compression_opts=int(rng.integers(10)),
        shuffle=bool(rng.integers(2)),
    )


@permitted
def extensible(file, rng, traps):
    path = a_dataset(file, rng)
    grows = [None if rng.random() < 0.5 else 2 * length for length in file[path].shape]
    recreate(file, path, maxshape=tuple(grows), chunks=file[path].shape)


@permitted
def other_order(file, rng, traps):
    for path in sorted(leaves(file), reverse=True):
        if file[path].size and rng.random() < 0.3:
            recreate(file, path)


@permitted
def with_fill_value_and_time(file, rng, traps):
    recreate(file, a_dataset(file, rng, "fi"), fillvalue=7, track_times=True)


@permitted
def longer_text(file, rng, traps):
    path = a_dataset(file, rng, "S")
    length = file[path].dtype.itemsize + int(rng.integers(1, 50))
    recreate(file, path, dtype=h5py.string_dtype("utf-8", length))


@permitted
def attributes_anew(file, rng, traps):
    names = list(file.attrs)
    for name in rng.permutation(names).tolist():
        value = file.attrs[name]
        datatype = file.attrs.get_id(name).dtype
        del file.attrs[name]
        file.attrs.create(name, value, dtype=datatype)


def chunked(dataset):
    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_chunk(dataset.shape)
    return properties


def low_level(file, path, datatype, properties=None):
    """Store a dataset anew with a datatype or properties that h5py has no words for."""
    value = file[path][()]
    if properties is None:
        properties = chunked(file[path])
        properties.set_fletcher32()
    del file[path]
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    dataset = h5d.create(
        file.id, path.encode(), datatype, h5s.create_simple(value.shape), properties, links
    )
    in_memory = datatype if value.dtype.kind == "S" else None
    dataset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(value), mtype=in_memory)
