"""What user code prints to, whole again after each run, for python-core.py. `kernel` is that file's module."""

import sys
from os import dup2, fstat

KERNEL_STREAMS = (sys.stdout, sys.stderr)

copy_descriptor = kernel.part('channel').copy_descriptor
saved = {}  # Name → copy of its descriptor: user code may close the stream.


def open_streams():
    for name, stream in zip(('stdout', 'stderr'), KERNEL_STREAMS):
        stream.reconfigure(encoding='utf-8', errors=stream.errors, line_buffering=True)
        saved[name] = copy_descriptor(stream.fileno())


def print_safely(text):
    try:
        print(text, file=sys.stderr)
    except BaseException:
        pass


def clean_up():
    sys.settrace(None)
    sys.setprofile(None)
    flush_streams()
    for name, fd in (('stdout', 1), ('stderr', 2)):
        try:
            restore_stream(name, fd)
        except BaseException:
            pass


def flush_streams():
    for stream in (getattr(sys, 'stdout', None), getattr(sys, 'stderr', None), *KERNEL_STREAMS):
        try:
            stream.flush()
        except BaseException:
            pass


def restore_stream(name, fd):
    try:
        fstat(fd)
    except OSError:
        dup2(saved[name], fd)
    stream = getattr(sys, name, None)
    if stream is not None and not stream.closed:
        return
    errors = 'backslashreplace' if name == 'stderr' else 'surrogateescape'
    setattr(sys, name, open(fd, 'w', buffering=1, encoding='utf-8', errors=errors, closefd=False))
