"""A second device that is pretended on the CPU, so that a machine without a GPU finds tensors and
generators on the wrong device as CUDA would.

Its tensors keep their numbers in tensors of the CPU, and say that they are elsewhere. An operation
on tensors of both devices raises, and so does `numpy()`; copies are counted as they would be waited
for. It stands on PyTorch's Python backends (`torch.utils.backend_registration`), which last as long
as the process: `install` belongs into a process of its own, before anything of ours is imported.
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "pretended"
DEVICE = f"{NAME}:0"
CPU = torch.device("cpu")
WAITS = {
    "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal",
    "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::repeat_interleave", "aten::bincount",
}  # fmt: skip
"""Operations whose result the CPU waits for, or the size of whose result."""
PAGEABLE = "a copy from pageable memory"
"""On CUDA it waits until the device has done all that it was asked for before."""
MIXED = {"aten::index.Tensor", "aten::index", "aten::index_put_"}
"""Operations that take indices of the CPU, on CUDA, too."""

UNREADY = 77
"""What memory holds until a copy into it has been waited for."""

waits = Counter[str]()
"""How often each kind of operation made the CPU wait for the device."""
library: torch.library.Library | None = None


class Pretended(torch.Tensor):
    """A tensor of the device; held: its numbers."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Pretended:
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, layout=held.layout, device=torch.device(DEVICE), requires_grad=False,
        )  # fmt: skip
        made.held = held
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.held!r})"

    def numpy(self, *, force: bool = False) -> Any:
        """A copy, where one is asked for."""
        if not force:
            raise TypeError(f"can't convert {DEVICE} device type tensor to numpy")
        waits["numpy"] += 1
        return self.held.detach().clone().numpy()

    def tolist(self) -> Any:
        """Copied and waited for."""
        waits["tolist"] += 1
        return self.held.tolist()

    def __format__(self, specification: str) -> str:
        return self.held.detach().__format__(specification)

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = operation._schema.name
        if name == "aten::_to_copy":
            return _copied(operation, args, kwargs)
        if name == "aten::copy_":
            target, source, *rest = args
            if not isinstance(target, Pretended):
                if (rest or [kwargs.get("non_blocking", False)])[0]:
                    _copy_later(target, source)
                    return target
                waits[name] += 1
            elif not isinstance(source, Pretended):
                waits[PAGEABLE] += not (rest or [kwargs.get("non_blocking", False)])[0]
            operation(_held(target), _held(source), *rest)
            return target
        if name in WAITS:
            waits[name] += 1
        if name in MIXED and any(one is not None and one.dtype == torch.bool for one in args[1]):
            # Where a mask is true is looked for first.
            waits["a mask as an index"] += 1
        return _performed(operation, args, kwargs)


class Event:
    """A point in what was asked of the device: the copies before it are there when it was waited
    for, and not earlier.
    """

    def __init__(self) -> None:
        self._copies = list[tuple[torch.Tensor, torch.Tensor]]()

    def record(self) -> None:
        self._copies += _under_way
        _under_way.clear()

    def synchronize(self) -> None:
        # Waiting for nothing but copies to the device, which is asked for later, takes no time.
        if self._copies:
            waits["event"] += 1
        for target, numbers in self._copies:
            target.copy_(numbers)
        self._copies.clear()


_under_way = list[tuple[torch.Tensor, torch.Tensor]]()


def _copy_later(target: torch.Tensor, source: Pretended) -> None:
    """To the CPU, without waiting: what is there until then is no number of the source."""
    _under_way.append((target, source.held.detach().clone()))
    target.copy_(torch.full_like(target, UNREADY))


def _held(value: Any) -> Any:
    """What the operation is really performed with."""
    if isinstance(value, Pretended):
        return value.held
    if isinstance(value, torch.device) and value.type == NAME:
        return CPU
    return value


def _copied(operation: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """A tensor of the device, moved or converted."""
    target = kwargs.pop("device", None) or args[0].device
    copy: torch.Tensor = operation(args[0].held, *args[1:], **kwargs)
    if target.type == NAME:
        return Pretended(copy)
    waits["aten::_to_copy"] += 1
    return copy


def _performed(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any other operation, all of whose tensors must be on one device."""
    given, structure = tree_flatten((args, kwargs))
    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    devices = {one.device.type for one in tensors if one.dim() or isinstance(one, Pretended)}
    name = operation._schema.name
    if len(devices) > 1 and name not in MIXED:
        raise RuntimeError(f"Expected all tensors to be on the same device, not {devices}: {name}")
    asked = kwargs.get("device")
    elsewhere = NAME in devices if asked is None else torch.device(asked).type == NAME
    if elsewhere and any(isinstance(one, torch.Generator) for one in given):
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu': {name}")
    held = [_held(one) for one in given]
    arguments, named = tree_unflatten(held, structure)
    found = operation(*arguments, **named)
    if not elsewhere:
        return found
    in_place = {
        id(own): one for own, one in zip(held, given, strict=True) if isinstance(one, Pretended)
    }

    def wrapped(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return in_place[id(one)] if id(one) in in_place else Pretended(one)

    return tree_map(wrapped, found)


def _empty(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    memory_format: Any = None,
) -> torch.Tensor:  # fmt: skip
    shaped = memory_format or torch.contiguous_format
    return Pretended(torch.empty(size, dtype=dtype, memory_format=shaped))


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> torch.Tensor:  # fmt: skip
    return Pretended(torch.empty_strided(size, stride, dtype=dtype))


def _from_cpu(
    tensor: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    non_blocking: bool = False, memory_format: Any = None,
) -> torch.Tensor:  # fmt: skip
    """`aten::_to_copy` of a tensor of the CPU, which may be one number."""
    if not isinstance(tensor, torch.Tensor):
        tensor = torch.scalar_tensor(tensor, dtype=dtype)
    shaped = memory_format or torch.preserve_format
    copy = torch.empty_like(tensor, dtype=dtype or tensor.dtype, memory_format=shaped)
    copy.copy_(tensor)
    if device is not None and device.type == NAME:
        waits[PAGEABLE] += not non_blocking
    return Pretended(copy) if device is not None and device.type == NAME else copy


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    _held(target).copy_(_held(source))
    return target


def install() -> str:
    """Make the device, for the rest of this process; returns its name."""
    global library
    from torch.utils import backend_registration as backends

    class Module(backends._DummyBackendModule):
        Event = staticmethod(Event)

        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16]

    backends._setup_privateuseone_for_python_backend(NAME, Module())
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the kernel of the CPU is replaced
        library.impl("empty.memory_format", _empty, "PrivateUse1")
        library.impl("empty_strided", _empty_strided, "PrivateUse1")
        library.impl("_copy_from", _copy_from, "PrivateUse1")
        library.impl("_to_copy", _from_cpu, "CPU")
    # Parameters stay the same objects when a module moves, as they do on CUDA; and no tensor of a
    # Python backend can be one of inference mode.
    torch.__future__.set_swap_module_params_on_conversion(True)
    torch.inference_mode = lambda mode=True: torch.no_grad()  # type: ignore[assignment, misc]
    return DEVICE
