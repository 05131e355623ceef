"""``tf.contrib.lookup``: lookup tables of constants, created outside of the network's graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_KEPT = "_digits_tables"


class HashTable:
    """A table initialized by ``initializer``; missing keys map to ``default_value``."""

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        shared_name: Any = None,
        name: Any = None,
        oov_buckets: int = 0,
    ) -> None:
        table_type = tf.lookup.StaticVocabularyTable if oov_buckets else tf.lookup.StaticHashTable
        with tf.init_scope():
            self._table = table_type(initializer(), oov_buckets or default_value)
        # A table exists as long as a Python object references it.
        graph = tf.compat.v1.get_default_graph()
        setattr(graph, _KEPT, [*getattr(graph, _KEPT, []), self._table])
        self.init = self.initializer = tf.no_op()

    def lookup(self, keys: Any, name: Any = None) -> Any:
        """Return the values for ``keys``."""
        return self._table.lookup(keys, name=name)

    def size(self, name: Any = None) -> tf.Tensor:
        return self._table.size(name=name)


def key_value_tensor_initializer(
    keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None, name: Any = None
) -> Any:
    """Create a ``KeyValueTensorInitializer`` lazily, in the graph of the table."""
    keys, values = _constant(keys), _constant(values)
    return lambda: tf.lookup.KeyValueTensorInitializer(keys, values, key_dtype, value_dtype)


def _constant(values: Any) -> Any:
    """Return the values of a constant, which may be a tensor of the graph being built."""
    known = tf.get_static_value(values) if isinstance(values, tf.Tensor) else values
    if known is None:
        raise ValueError("the keys and values of a table must be constants")
    return known


def index_table_from_tensor(
    mapping: Any = None,
    num_oov_buckets: int = 0,
    default_value: int = -1,
    hasher_spec: Any = None,
    dtype: Any = tf.string,
    name: Any = None,
    vocabulary_list: Any = None,
) -> HashTable:
    """Map the strings in ``mapping`` to their indexes, int64."""
    words = _constant(vocabulary_list if mapping is None else mapping)

    def initializer() -> Any:
        numbers = tf.range(len(words), dtype=tf.int64)
        return tf.lookup.KeyValueTensorInitializer(words, numbers, dtype, tf.int64)

    return HashTable(initializer, default_value, oov_buckets=num_oov_buckets)


def index_to_string_table_from_tensor(
    mapping: Any = None, default_value: str = "UNK", name: Any = None, vocabulary_list: Any = None
) -> HashTable:
    """Map indexes, int64, to the strings in ``mapping``."""
    words = _constant(vocabulary_list if mapping is None else mapping)

    def initializer() -> Any:
        numbers = tf.range(len(words), dtype=tf.int64)
        return tf.lookup.KeyValueTensorInitializer(numbers, words, tf.int64, tf.string)

    return HashTable(initializer, default_value)


def _read_lines(vocabulary_file: Any) -> list[str]:
    return tf.io.gfile.GFile(vocabulary_file).read().splitlines()


def index_table_from_file(
    vocabulary_file: Any, num_oov_buckets: int = 0, default_value: int = -1, **kwargs: Any
) -> Any:
    """Map the lines of a file to their indexes, int64."""
    return index_table_from_tensor(_read_lines(vocabulary_file), num_oov_buckets, default_value)


def index_to_string_table_from_file(
    vocabulary_file: Any, default_value: str = "UNK", **kwargs: Any
) -> HashTable:
    """Map indexes, int64, to the lines of a file."""
    return index_to_string_table_from_tensor(_read_lines(vocabulary_file), default_value)


def names() -> dict[str, Any]:
    """Return the names of ``tf.contrib.lookup``."""
    return {
        "HashTable": HashTable,
        "StaticHashTable": HashTable,
        "KeyValueTensorInitializer": key_value_tensor_initializer,
        "index_table_from_tensor": index_table_from_tensor,
        "index_table_from_file": index_table_from_file,
        "index_to_string_table_from_tensor": index_to_string_table_from_tensor,
        "index_to_string_table_from_file": index_to_string_table_from_file,
    }
