"""GGUF files with another head and the same data: other shapes of tensors, a key less."""
import struct

import gguf


def with_dims(path, out, change):
    """The file with change(name, dims) for the dimensions of each tensor."""
    reader, data = gguf.GGUFReader(path), path.read_bytes()
    first, last = reader.tensors[0].field, reader.tensors[-1].field
    head, end = data[:first.offset], last.offset + sum(p.nbytes for p in last.parts)
    for t in reader.tensors:
        name, _, dims, kind, offset = (t.field.parts[i] for i in (1, 2, 3, 4, 5))
        new = change(t.name, [int(n) for n in dims])
        head += struct.pack("<Q", len(name)) + bytes(name) + struct.pack("<I", len(new)) + struct.pack(f"<{len(new)}Q", *new) + bytes(kind) + bytes(offset)
    assert end <= len(data)
    out.write_bytes(head + bytes(-len(head) % 32) + data[reader.data_offset:])


def padded(_, dims):
    return (dims + [1, 1, 1])[:4]


def without_key(path, out, key):
    """The file less this key."""
    reader, data = gguf.GGUFReader(path), path.read_bytes()
    field = reader.fields[key]
    begin, last = field.offset, reader.tensors[-1].field
    end, header = begin + sum(p.nbytes for p in field.parts), last.offset + sum(p.nbytes for p in last.parts)
    head = data[:16] + struct.pack("<Q", struct.unpack_from("<Q", data, 16)[0] - 1) + data[24:begin] + data[end:header]
    out.write_bytes(head + bytes(-len(head) % 32) + data[reader.data_offset:])
