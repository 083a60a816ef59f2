"""Strict JSON at the level of bytes, compiled: white space, strings, numbers, values, and a table of strings.

Everything works on addresses of one buffer that is followed by at least ``PADDING`` bytes, the first of them zero: a
zero is neither white space nor allowed anywhere in JSON, so no function needs to know where the text ends. Positions
are returned as addresses; 0 means "not strict JSON, or too unusual to bother with": the tolerant parser then decides.
Tables are handed on as addresses too, because arrays cost dozens of arguments and a reference count per call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

PADDING = 128

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_LANES = ir.VectorType(_BYTE, 64)
_DEEPEST = 60  # one bit per level is kept in a word

QUOTE, BACKSLASH, COMMA, COLON, MINUS, DOT, ZERO = 34, 92, 44, 58, 45, 46, 48
OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT = 91, 93, 123, 125
_SPACE = 32
_MOST_DIGITS = 18  # any more may not fit 64 bits

u64 = np.uint64
_TRUE, _NULL, _FALSE = (np.uint64(int.from_bytes(text, "little")) for text in (b"true", b"null", b"false"))
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


@intrinsic  # type: ignore[untyped-decorator]
def byte_at(_: Any, address: Any) -> Any:
    """Read one byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return builder.zext(_load(builder, args[0], _BYTE), _WORD)

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def word_at(_: Any, address: Any) -> Any:
    """Read eight bytes, little end first, from any address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return _load(builder, args[0], _WORD)

    return types.uint64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def get(_: Any, block: Any, index: Any) -> Any:
    """Return a number of the int64 array at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        return _load(builder, builder.add(args[0], builder.shl(args[1], _WORD(3))), _WORD)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put(_: Any, block: Any, index: Any, value: Any) -> Any:
    """Set a number of the int64 array at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        address = builder.add(args[0], builder.shl(args[1], _WORD(3)))
        builder.store(args[2], builder.inttoptr(address, _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _put_word(_: Any, address: Any, word: Any) -> Any:
    """Write eight bytes to any address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del signature
        builder.store(args[1], builder.inttoptr(args[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def trailing_zeros(_: Any, word: Any) -> Any:
    """Count the zero bits below the lowest set one (64 without any)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        kind = ir.FunctionType(_WORD, [_WORD, ir.IntType(1)])
        function = builder.module.declare_intrinsic("llvm.cttz", [_WORD], kind)
        return builder.call(function, [args[0], ir.Constant(ir.IntType(1), 0)])

    return types.int64(types.uint64), generate


def _mask(test: Any) -> Any:
    """Make a function of an address: one bit for each of the 64 bytes there that pass a test."""

    @intrinsic  # type: ignore[untyped-decorator]
    def mask(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            del context, signature
            lanes = _load(builder, args[0], _LANES)

            def compare(sign: str, byte: int) -> Any:
                return builder.icmp_unsigned(sign, lanes, ir.Constant(_LANES, [byte] * 64))

            return builder.bitcast(test(builder, compare), _WORD)

        return types.uint64(types.int64), generate

    return mask


# what ends the plain part of a string: its quote, an escape, a control character
_string_stops = _mask(
    lambda b, c: b.or_(b.or_(c("==", QUOTE), c("==", BACKSLASH)), c("<", _SPACE)),
)
_not_space = _mask(
    lambda b, c: b.not_(b.or_(b.or_(c("==", _SPACE), c("==", 10)), b.or_(c("==", 13), c("==", 9)))),
)
_marks = _mask(
    lambda b, c: b.or_(
        b.or_(b.or_(c("==", QUOTE), c("==", 0)), b.or_(c("==", OPEN_LIST), c("==", CLOSE_LIST))),
        b.or_(c("==", OPEN_OBJECT), c("==", CLOSE_OBJECT)),
    )
)


@njit(nogil=True, cache=True, forceinline=True)
def skip_space(p):  # type: ignore[no-untyped-def]
    """Return the address of the first byte that is not white space."""
    if byte_at(p) > _SPACE:
        return p
    while True:
        mask = _not_space(p)
        if mask != _NONE:
            return p + trailing_zeros(mask)
        p += 64


@njit(nogil=True, cache=True)
def _string_end_slow(p):  # type: ignore[no-untyped-def]
    while True:
        mask = _string_stops(p)
        if mask == _NONE:
            p += 64
            continue
        p += trailing_zeros(mask)
        c = byte_at(p)
        if c == QUOTE:
            return p
        if c != BACKSLASH:
            return 0  # a control character
        c = byte_at(p + 1)
        # " / \ b f n r t; \u is left to the tolerant parser
        if not (c == 34 or c == 47 or c == 92 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116):
            return 0
        p += 2


@njit(nogil=True, cache=True, forceinline=True)
def string_end(p):  # type: ignore[no-untyped-def]
    """Return the address of the closing quote; ``p`` is behind the opening one."""
    mask = _string_stops(p)
    end = p + trailing_zeros(mask)
    if mask != _NONE and byte_at(end) == QUOTE:
        return end
    return _string_end_slow(p)


@njit(nogil=True, cache=True, forceinline=True)
def plain_string_end(p):  # type: ignore[no-untyped-def]
    """Return the address of the closing quote of a string without escapes of at most 63 bytes."""
    mask = _string_stops(p)
    end = p + trailing_zeros(mask)
    return end if mask != _NONE and byte_at(end) == QUOTE else 0


@njit(nogil=True, cache=True, forceinline=True)
def _digits_end(p):  # type: ignore[no-untyped-def]
    while ZERO <= byte_at(p) <= 57:
        p += 1
    return p


@njit(nogil=True, cache=True, forceinline=True)
def number_end(p):  # type: ignore[no-untyped-def]
    """Return the address behind a number."""
    if byte_at(p) == MINUS:
        p += 1
    end = _digits_end(p)
    if end == p or (byte_at(p) == ZERO and end > p + 1):
        return 0
    p = end
    if byte_at(p) == DOT:
        end = _digits_end(p + 1)
        if end == p + 1:
            return 0
        p = end
    c = byte_at(p)
    if c == 101 or c == 69:  # e, E
        p += 1
        c = byte_at(p)
        if c == 43 or c == MINUS:
            p += 1
        end = _digits_end(p)
        if end == p:
            return 0
        p = end
    return p


@njit(nogil=True, cache=True, forceinline=True)
def plain_integer(p):  # type: ignore[no-untyped-def]
    """Read an integer of at most 18 digits; returns it and the address behind it."""
    is_negative = byte_at(p) == MINUS
    if is_negative:
        p += 1
    first = p
    value = np.int64(0)
    while True:
        digit = byte_at(p) - ZERO
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        p += 1
    size = p - first
    c = byte_at(p)
    if size == 0 or size > _MOST_DIGITS or (size > 1 and byte_at(first) == ZERO) or c == DOT or c == 101 or c == 69:
        return value, np.int64(0)
    return (-value if is_negative else value), p


@njit(nogil=True, cache=True, forceinline=True)
def plain_nanoseconds(p):  # type: ignore[no-untyped-def]
    """Read microseconds (at most 15 digits, any decimals) as nanoseconds, rounded half up.

    Returns:
        The time and the address behind it.
    """
    first = p
    value = np.int64(0)
    while True:
        digit = byte_at(p) - ZERO
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        p += 1
    size = p - first
    if size == 0 or size > 15 or (size > 1 and byte_at(first) == ZERO):
        return value, np.int64(0)
    value *= 1000
    if byte_at(p) == DOT:
        p += 1
        first = p
        unit = np.int64(100)
        while True:
            digit = byte_at(p) - ZERO
            if digit < 0 or digit > 9:
                break
            if unit > 0:
                value += digit * unit
                unit //= 10
            elif p == first + 3 and digit >= 5:
                value += 1
            p += 1
        if p == first:
            return value, np.int64(0)
    c = byte_at(p)
    if c == 101 or c == 69:
        return value, np.int64(0)
    return value, p


@njit(nogil=True, cache=True, forceinline=True)
def _member_value(p):  # type: ignore[no-untyped-def]
    """Return the address of a member's value; ``p`` is at its key."""
    if byte_at(p) != QUOTE:
        return 0
    p = string_end(p + 1)
    if p == 0:
        return 0
    p = skip_space(p + 1)
    return skip_space(p + 1) if byte_at(p) == COLON else 0


@njit(nogil=True, cache=True)
def value_end(p):  # type: ignore[no-untyped-def]
    """Return the address behind any JSON value, strictly checked."""
    depth = 0
    objects = _NONE  # one bit per level, the innermost lowest: 1 for an object
    while True:
        c = byte_at(p)
        if c == QUOTE:
            p = string_end(p + 1)
            if p == 0:
                return 0
            p += 1
        elif c in (OPEN_LIST, OPEN_OBJECT):
            p = skip_space(p + 1)
            if byte_at(p) == c + 2:
                p += 1
            else:
                depth += 1
                if depth > _DEEPEST:
                    return 0
                objects <<= _ONE
                if c == OPEN_OBJECT:
                    objects |= _ONE
                    p = _member_value(p)
                    if p == 0:
                        return 0
                continue
        elif word_at(p) & u64(0xFFFFFFFF) in (_TRUE, _NULL):
            p += 4
        elif word_at(p) & u64(0xFFFFFFFFFF) == _FALSE:
            p += 5
        else:
            p = number_end(p)
            if p == 0:
                return 0
        while True:
            if depth == 0:
                return p
            p = skip_space(p)
            c = byte_at(p)
            is_object = objects & _ONE != _NONE
            if c == COMMA:
                p = skip_space(p + 1)
                if is_object:
                    p = _member_value(p)
                    if p == 0:
                        return 0
                break
            if c != (CLOSE_OBJECT if is_object else CLOSE_LIST):
                return 0
            p += 1
            depth -= 1
            objects >>= _ONE


@njit(nogil=True, cache=True)
def outline_end(p, end):  # type: ignore[no-untyped-def]
    """Return the address behind an object by counting its brackets; what is between them is not checked."""
    depth = 0
    while p < end:
        mask = _marks(p)
        if mask == _NONE:
            p += 64
            continue
        p += trailing_zeros(mask)
        c = byte_at(p)
        p += 1
        if c == QUOTE:
            while True:
                c = byte_at(p)
                p += 1
                if c == QUOTE:
                    break
                if c == BACKSLASH:
                    p += 1
                if p >= end:
                    return 0
        elif c in (OPEN_LIST, OPEN_OBJECT):
            depth += 1
        elif c == 0:
            return 0
        else:
            depth -= 1
            if depth == 0:
                return p
    return 0


@njit(nogil=True, cache=True, forceinline=True)
def _hash(p, size):  # type: ignore[no-untyped-def]
    h = u64(0x9E3779B97F4A7C15) ^ u64(size)
    while size >= 8:
        h = (h ^ word_at(p)) * u64(0xFF51AFD7ED558CCD)
        h ^= h >> u64(32)
        p += 8
        size -= 8
    if size > 0:
        h = (h ^ (word_at(p) & ((_ONE << u64(8 * size)) - _ONE))) * u64(0xFF51AFD7ED558CCD)
        h ^= h >> u64(32)
    h *= u64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> u64(29))


@njit(nogil=True, cache=True, forceinline=True)
def _is_same(a, b, size):  # type: ignore[no-untyped-def]
    while size >= 8:
        if word_at(a) != word_at(b):
            return False
        a += 8
        b += 8
        size -= 8
    if size > 0:
        mask = (_ONE << u64(8 * size)) - _ONE
        return (word_at(a) & mask) == (word_at(b) & mask)
    return True


# the block that describes a table of strings
HASHES, CODES, OFFSETS, SIZES, ARENA, COUNT, USED, LAST_SLOT, CAPACITY, ARENA_SIZE = range(10)
BLOCK_SIZE = 10


@njit(nogil=True, cache=True)
def lookup(p, size, table):  # type: ignore[no-untyped-def]
    """Return the code of a string, giving it the next one when it is new; -1 when the table is full.

    Args:
        p: Address of the string.
        size: Its length, bytes.
        table: Address of a table's block; see ``StringTable``.
    """
    h = _hash(p, size)
    hashes, codes, arena, last = get(table, HASHES), get(table, CODES), get(table, ARENA), get(table, LAST_SLOT)
    slot = np.int64(h & u64(last))
    while True:
        code = get(codes, slot)
        if code < 0:
            break
        if (
            word_at(hashes + 8 * slot) == h
            and get(get(table, SIZES), code) == size
            and _is_same(arena + get(get(table, OFFSETS), code), p, size)
        ):
            return code
        slot = (slot + 1) & last
    code = get(table, COUNT)
    offset = get(table, USED)
    if code >= get(table, CAPACITY) or offset + size + 16 > get(table, ARENA_SIZE):
        return np.int64(-1)
    for i in range(0, size, 8):
        _put_word(arena + offset + i, word_at(p + i))
    put(get(table, OFFSETS), code, offset)
    put(get(table, SIZES), code, size)
    _put_word(hashes + 8 * slot, h)
    put(codes, slot, code)
    put(table, COUNT, code + 1)
    put(table, USED, offset + size)
    return code


@njit(nogil=True, cache=True)
def refill(before, after):  # type: ignore[no-untyped-def]
    """Look all strings of one table up in another, empty one; both are addresses of their blocks."""
    for code in range(get(before, COUNT)):
        lookup(get(before, ARENA) + get(get(before, OFFSETS), code), get(get(before, SIZES), code), after)


LONGEST_KEY = 24  # bytes; three words
KEY_SLOTS = 256


@njit(nogil=True, cache=True, forceinline=True)
def _key_words(p, size):  # type: ignore[no-untyped-def]
    first, second, third = word_at(p), _NONE, _NONE
    if size < 8:
        first &= (_ONE << u64(8 * size)) - _ONE
    elif size > 8:
        second = word_at(p + 8)
        if size < 16:
            second &= (_ONE << u64(8 * (size - 8))) - _ONE
        elif size > 16:
            third = word_at(p + 16)
            if size < 24:
                third &= (_ONE << u64(8 * (size - 16))) - _ONE
    return first, second, third


@njit(nogil=True, cache=True, forceinline=True)
def _key_slot(first, second, third):  # type: ignore[no-untyped-def]
    mixed = (first ^ (second * u64(0x9E3779B97F4A7C15)) ^ (third << _ONE)) * u64(0xFF51AFD7ED558CCD)
    return np.int64(mixed >> u64(56))


@njit(nogil=True, cache=True, forceinline=True)
def find_key(p, size, table):  # type: ignore[no-untyped-def]
    """Return the code of a short string known beforehand, or -1.

    Args:
        p: Address of the string.
        size: Its length, at most ``LONGEST_KEY``.
        table: Address of ``KEY_SLOTS`` × (three words of the string, its code); filled by ``add_key``.
    """
    first, second, third = _key_words(p, size)
    slot = _key_slot(first, second, third)
    while True:
        entry = table + 32 * slot
        code = get(entry, 3)
        if code < 0 or (word_at(entry) == first and word_at(entry + 8) == second and word_at(entry + 16) == third):
            return code
        slot = (slot + 1) & (KEY_SLOTS - 1)


@njit(nogil=True, cache=True)
def add_key(p, size, code, table):  # type: ignore[no-untyped-def]
    """Add a string to the table of ``find_key``."""
    first, second, third = _key_words(p, size)
    slot = _key_slot(first, second, third)
    while get(table + 32 * slot, 3) >= 0:
        slot = (slot + 1) & (KEY_SLOTS - 1)
    entry = table + 32 * slot
    _put_word(entry, first)
    _put_word(entry + 8, second)
    _put_word(entry + 16, third)
    put(entry, 3, code)
