"""Tensors of PyTorch as rows of muster.params and tensors of muster.publication, bf16 among them."""
# Needs: torch
import pytest
import torch
from test_params import server  # noqa: F401 (fixtures, here and below)
from test_publication import publisher, reader, registry  # noqa: F401

import muster


@pytest.mark.parametrize("name, dtype", [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)])
def test_rows_are_tensors(server, name, dtype):
    with muster.params.Client(server.address) as client:
        table = client.table("rows", 2, dtype=name)
        keys = torch.arange(3)
        given = torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=dtype, requires_grad=True)
        values = torch.zeros(3, 2, dtype=dtype)

        table.push(keys, given)

        assert table.pull(keys, values) is values and torch.equal(values, given)
        assert torch.equal(table.push_pull(keys, given, torch.empty(3, 2, dtype=dtype)), 2 * given)


def test_a_tensor_of_another_type_is_refused(server):
    with muster.params.Client(server.address) as client:
        table = client.table("rows", 2, dtype="bf16")

        with pytest.raises(TypeError):
            table.push(torch.arange(3), torch.ones(3, 2))


def test_versions_are_tensors(publisher, reader):
    given = {str(dtype): torch.arange(9).to(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool,
                                                                 torch.int16, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2)}

    publisher.put(given)

    version = reader.take(1)
    for name, tensor in given.items():
        assert version.torch(name).dtype == tensor.dtype
        assert torch.equal(version.torch(name).view(torch.uint8), tensor.view(torch.uint8))
