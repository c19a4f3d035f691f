"""Problems in time whose states are spread over ranks."""
