"""The way to whoever asks for runs, and JSON for it, for python-core.py. `kernel` is that file's module."""

import os
from os import _exit, close, dup, dup2, getpid, read, write

import _json
import _thread

MAX_LINE_BYTES = 16 * 1024 * 1024
READ_BYTES = 256 * 1024
CHANNEL_FD = 3
HIGH_FD = 900

Kernel = kernel.Kernel
lock = _thread.allocate_lock()


def open_channel():
    """Away from where it was given: a program that user code starts must not find it."""
    Kernel.channel = copy_descriptor(CHANNEL_FD)
    close(CHANNEL_FD)
    os.register_at_fork(after_in_child=close_channel)


def copy_descriptor(fd):
    """To a high number, where nobody is in its way."""
    try:
        return dup2(fd, HIGH_FD + fd, inheritable=False)
    except OSError:
        return dup(fd)


def close_channel():
    channel, Kernel.channel = Kernel.channel, -1
    if channel >= 0:
        close(channel)


def send(text):
    if getpid() != kernel.KERNEL_PID or Kernel.channel < 0:
        return
    data = memoryview(encode_text(text + '\n'))
    with lock:
        try:
            while data:
                data = data[write(Kernel.channel, data) :]
        except OSError:
            _exit(1)  # Nobody is there who could be told.


def read_lines():
    buffered = bytearray()
    while len(buffered) <= MAX_LINE_BYTES:
        try:
            chunk = read(Kernel.channel, READ_BYTES)
        except OSError:
            return
        if not chunk:
            return
        start = len(buffered)
        buffered += chunk
        while (end := buffered.find(b'\n', start)) >= 0:
            line = buffered[:end].decode()
            del buffered[: end + 1]
            start = 0
            yield line


# JSON, by what of `json` is built in: importing the whole takes longer than all of this file


class ScannerOptions:
    strict, object_hook, object_pairs_hook = False, None, None
    parse_float, parse_int, parse_constant, memo = float, int, float, {}


def parse_json(text):
    return _json.make_scanner(ScannerOptions)(text, 0)[0]


def to_json(value):
    encoder = _json.make_encoder({}, refuse, _json.encode_basestring, None, ':', ',', False, False, False)
    return ''.join(encoder(value, 0))


def refuse(value):
    raise TypeError(f'{type(value).__name__} is not JSON')


def encode_text(text):
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair, which only an escape can carry.
        return ''.join(c if not '\ud800' <= c <= '\udfff' else f'\\u{ord(c):04x}' for c in text).encode()
