"""An encoder of pictures for the model of this tree, or for one of another width: that of tests/records/projectors/idefics3, whose last matrix gets other rows, so that its rows are as long as the model's."""
import lzma

import gguf
import numpy as np
from conftest import REPO

WIDTH = 256      # of models/tinypy.gguf


def write(path, width=WIDTH):
    small = path.with_suffix(".small")
    small.write_bytes(lzma.decompress((REPO / "tests" / "records" / "projectors" / "idefics3.gguf.xz").read_bytes()))
    reader, writer = gguf.GGUFReader(small), gguf.GGUFWriter(path, "clip")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = width if name == "clip.vision.projection_dim" else field.contents()
        writer.add_key_value(name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        data = np.resize(tensor.data, (width, tensor.data.shape[1])) if tensor.name == "mm.model.fc.weight" else tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type if data.dtype == np.uint8 else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    small.unlink()
    return path
