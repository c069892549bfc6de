"""Vectors of 16 float32 numbers as a type of compiled functions.

numba leaves it to LLVM which loops become vector instructions, and it gives up on most of those that a
network needs. These functions say it: each is one instruction of a processor with AVX-512, and two of
one with AVX2. The numbers are the same on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic, models, register_model

LANES = 16
VECTOR = ir.VectorType(ir.FloatType(), LANES)
FLOAT_BYTES = 4


class Lanes(types.Type):  # type: ignore[misc]
    """The type of such a vector in compiled functions."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(Lanes)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, of_type: Any) -> None:
        super().__init__(manager, of_type, VECTOR)


lanes = Lanes()


def _instruction(generate: Callable[..., Any]) -> Any:
    """A function for compiled ones that writes LLVM's instructions; a type checker knows nothing of it."""
    return intrinsic(generate)


@_instruction
def pointer(typing: Any, array: Any) -> Any:
    """The address of a contiguous array's first number, which is indexed as a flat array is. Functions take
    one word for it in place of seven, which compiles in a third of the time.
    """
    if array.layout != "C":
        raise errors.TypingError(f"a pointer's array is contiguous, not {array}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), generate


def _address(builder: Any, numbers: Any, place: Any) -> Any:
    return builder.bitcast(builder.gep(numbers, [place]), VECTOR.as_pointer())


@_instruction
def load(typing: Any, numbers: Any, place: Any) -> Any:
    """The numbers at `place` of a pointer and after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(builder, *arguments)
        return builder.load(address, align=FLOAT_BYTES)

    return lanes(numbers, types.intp), generate


@_instruction
def store(typing: Any, numbers: Any, place: Any, vector: Any) -> Any:
    """Write the vector to `place` of a pointer and after it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(builder, *arguments[:2])
        builder.store(arguments[2], address, align=FLOAT_BYTES)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, lanes), generate


def _first_lanes(builder: Any, count: Any) -> Any:
    """Which lanes are the first ones, as many as a number says."""
    words = ir.VectorType(ir.IntType(64), LANES)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    nothing = ir.Constant(words, ir.Undefined)
    one = builder.insert_element(nothing, count, ir.Constant(ir.IntType(32), 0))
    counts = builder.shuffle_vector(one, nothing, zeros)
    return builder.icmp_signed("<", ir.Constant(words, list(range(LANES))), counts)


def _masked(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(result, [one.type for one in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments)


@_instruction
def load_some(typing: Any, numbers: Any, place: Any, count: Any) -> Any:
    """The first lanes of `load`, so many, and 0; no other number is read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(builder, *arguments[:2])
        given = (
            address, ir.Constant(ir.IntType(32), FLOAT_BYTES), _first_lanes(builder, arguments[2]),
            ir.Constant(VECTOR, [0.0] * LANES),
        )  # fmt: skip
        return _masked(builder, f"llvm.masked.load.v{LANES}f32.p0", VECTOR, given)

    return lanes(numbers, types.intp, types.intp), generate


@_instruction
def store_some(typing: Any, numbers: Any, place: Any, vector: Any, count: Any) -> Any:
    """The first lanes of `store`, so many; no other number is written."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = (
            arguments[2], _address(builder, *arguments[:2]),
            ir.Constant(ir.IntType(32), FLOAT_BYTES), _first_lanes(builder, arguments[3]),
        )  # fmt: skip
        _masked(builder, f"llvm.masked.store.v{LANES}f32.p0", ir.VoidType(), given)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, lanes, types.intp), generate


@_instruction
def spread(typing: Any, number: Any) -> Any:
    """A vector that has this number in all lanes."""
    nothing = ir.Constant(VECTOR, ir.Undefined)
    first = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one = builder.insert_element(nothing, arguments[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, nothing, first)

    return lanes(types.float32), generate


def _operation(count: int, generate: Callable[[Any, Any], Any]) -> Any:
    """An intrinsic of so many vectors. generate: builder, arguments -> the result."""

    def of_lanes(typing: Any, *vectors: Any) -> Any:
        return lanes(*[lanes] * count), lambda context, builder, signature, arguments: generate(
            builder, arguments
        )

    return of_lanes


def _called(name: str) -> Callable[[Any, Any], Any]:
    """A function of LLVM's on vectors."""

    def generate(builder: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(VECTOR, [VECTOR] * len(arguments))
        function = cgutils.get_or_insert_function(builder.module, kind, f"{name}.v{LANES}f32")
        return builder.call(function, arguments)

    return generate


@_instruction
def fma(typing: Any, one: Any, other: Any, third: Any) -> Any:
    """The products of two and the third one, one · other + third, rounded once."""
    return _operation(3, _called("llvm.fma"))(typing)


@_instruction
def root(typing: Any, vector: Any) -> Any:
    """√vector."""
    return _operation(1, _called("llvm.sqrt"))(typing)


@_instruction
def product(typing: Any, one: Any, other: Any) -> Any:
    """The product, one · other."""
    return _operation(2, lambda builder, both: builder.fmul(*both))(typing)


@_instruction
def quotient(typing: Any, one: Any, other: Any) -> Any:
    """The quotient, one / other."""
    return _operation(2, lambda builder, both: builder.fdiv(*both))(typing)


@_instruction
def smaller(typing: Any, one: Any, other: Any) -> Any:
    """The smaller ones; NaN where `one` is NaN."""
    return _operation(
        2, lambda builder, both: builder.select(builder.fcmp_ordered(">", *both), both[1], both[0])
    )(typing)


@_instruction
def larger(typing: Any, one: Any, other: Any) -> Any:
    """The larger ones; NaN where `one` is NaN."""
    return _operation(
        2, lambda builder, both: builder.select(builder.fcmp_ordered("<", *both), both[1], both[0])
    )(typing)


@_instruction
def gated(typing: Any, gate: Any, vector: Any) -> Any:
    """The vector, with 0 where the gate is 0 or less."""
    nothing = ir.Constant(VECTOR, [0.0] * LANES)
    return _operation(
        2,
        lambda builder, both: builder.select(
            builder.fcmp_ordered("<=", both[0], nothing), nothing, both[1]
        ),
    )(typing)


@_instruction
def total(typing: Any, vector: Any) -> Any:
    """The sum of all lanes, always in the same order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.FloatType(), [ir.FloatType(), VECTOR])
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        # "reassoc" allows a tree of sums, which the processor's instructions decide.
        begin = ir.Constant(ir.FloatType(), -0.0)
        return builder.call(function, [begin, arguments[0]], fastmath=("reassoc",))

    return types.float32(lanes), generate
