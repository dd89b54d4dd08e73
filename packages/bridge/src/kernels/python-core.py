"""Runs Python code for Ash, started by python-kernel.py. Requests come by descriptor 3 and replies go there, one JSON
object a line; see packages/shared/src/interpreter.ts. The code is hostile: whatever is needed after it ran is held
privately here. It has to start fast, so only modules that need no file are imported, and what not every run needs is in
parts of its own, loaded late.
"""

import builtins
import os
import sys

import _ast
import _json
import _signal
import _thread
from os import _exit, close, dup, dup2, fstat, getpid, read, write
from time import monotonic, tzset

MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_RESULT_BYTES = MAX_RESULTS_BYTES = 10 * 1024 * 1024
READ_BYTES = 256 * 1024
CHANNEL_FD = 3
HIGH_FD = 900
SIGINT = 2
COMPILE_FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80
DROPPED = {'text/plain': f'Further results were dropped: together they exceed {MAX_RESULTS_BYTES} bytes.'}
KERNEL_PID = getpid()
KERNEL_FILES = '<ash>/'  # What the names of all its files begin with in a traceback.
KERNEL_MODULE = sys.modules['__main__']  # Kept: with the last reference its globals would go.
KERNEL_STREAMS = (sys.stdout, sys.stderr)
KERNEL_PATH = sys.path[1:]  # Without the folder that user code is in.
STANDARD_FOLDER = os.__file__.rpartition('/')[0] + '/'


class Kernel:
    """What is known from one run to the next."""

    channel = -1
    saved_streams = {}  # Name → copy of its descriptor: user code may close the stream.
    sources = {}  # File name → code, for tracebacks.
    parts = {}
    namespace = {}
    importer = None  # The thread in which the kernel itself imports something.
    cells = 0
    futures = 0  # Compiler flags: what a cell imports from __future__ holds for the later ones.
    replaced_env = {}  # Name → value before this run, None where there was none.
    loop = None
    task = None  # Of the code that is awaited now.
    lock = _thread.allocate_lock()
    is_running = False
    is_interruptible = False
    is_interrupted = False
    displayed_bytes = 0


class RunFailure(Exception):
    """An error of a run that is no exception of its code."""

    def __init__(self, name, message):
        super().__init__(message)
        self.name = name


class InputNotAvailable(RuntimeError):
    pass


def part(name):
    """The module `python-<name>.py` beside this file, which user code cannot see or replace."""
    module = Kernel.parts.get(name)
    if module is None:
        module = type(sys)(name)
        module.__builtins__, module.kernel = __builtins__, KERNEL_MODULE
        with_own_imports(exec, load_code(name), vars(module))
        Kernel.parts[name] = module
    return module


def with_own_imports(function, *arguments):
    """A file of the workspace that has the name of a standard module is not meant for the kernel."""
    importer, Kernel.importer = Kernel.importer, _thread.get_ident()
    shadows = [name for name, module in [*sys.modules.items()] if is_shadow(name, module)]
    aside = {name: sys.modules.pop(name) for name in shadows}
    try:
        return function(*arguments)
    finally:
        Kernel.importer = importer
        sys.modules.update(aside)


def is_shadow(name, module):
    if name not in sys.stdlib_module_names or type(module) is not type(sys):
        return False
    file = vars(module).get('__file__')
    return type(file) is str and not file.startswith(STANDARD_FOLDER)


# The channel


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
    if getpid() != KERNEL_PID or Kernel.channel < 0:
        return
    data = memoryview(encode_text(text + '\n'))
    with Kernel.lock:
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


def result_json(value):
    try:
        text = to_json(value)
    except Exception as error:
        fault = part('errors').find_fault(value, error)
        raise RunFailure('ResultNotSerializable', f'The result cannot be written as JSON: {fault}') from None
    if len(text) > MAX_RESULT_BYTES or len(encode_text(text)) > MAX_RESULT_BYTES:
        raise RunFailure('ResultTooLarge', f'The result is larger than {MAX_RESULT_BYTES} bytes of JSON')
    return text


# Rich results


def display(*values):
    """Shows each value as a result of this run, as rich as it can be."""
    for value in values:
        show(bundle_of(value))
    if Kernel.is_interrupted:
        Kernel.is_interrupted = False
        raise KeyboardInterrupt


def bundle_of(value):
    if type(value) in (int, float, bool):
        return {'text/plain': repr(value)}
    return part('displays').make_bundle(value)


def show(bundle, is_value=False):
    if not Kernel.is_running or Kernel.displayed_bytes > MAX_RESULTS_BYTES:
        return
    room = MAX_RESULTS_BYTES - Kernel.displayed_bytes
    text = to_json(bundle)
    if is_value and len(text) > room:
        text = to_json({'text/plain': bundle['text/plain']})
    size = len(encode_text(text))
    Kernel.displayed_bytes += size
    if size > room:
        Kernel.displayed_bytes = MAX_RESULTS_BYTES + 1
        send('{"display":%s}' % to_json(DROPPED))
    else:
        send('{"display":%s%s}' % (text, ',"value":true' if is_value else ''))


def show_figures():
    if 'matplotlib.pyplot' in sys.modules:
        part('displays').show_figures()


# Interrupts


def on_interrupt(_signal_number, frame):
    """An exception goes into user code only: in the middle of a reply it would break the protocol."""
    if not Kernel.is_running:
        return
    is_own = frame is not None and frame.f_code.co_filename.startswith(KERNEL_FILES)
    if Kernel.task is not None and part('async').is_waiting(frame):
        Kernel.loop.call_soon_threadsafe(Kernel.task.cancel)
    elif Kernel.is_interruptible and (not is_own or frame.f_code is enter.__code__):
        raise KeyboardInterrupt
    Kernel.is_interrupted = True


def enter(function, *arguments):
    """The way into user code: here, too, an interrupt is an exception, so that none is lost."""
    if Kernel.is_interrupted:
        raise KeyboardInterrupt
    return function(*arguments)


def interruptible(function, *arguments):
    Kernel.is_interruptible = True
    try:
        return function(*arguments)
    finally:
        Kernel.is_interruptible = False


# Running


def evaluate(codes, namespace):
    """The value of the last."""
    if any(code.co_flags & CO_COROUTINE for code in codes):
        return part('async').settle(part('async').evaluate(codes, namespace))
    return [enter(eval, code, namespace) for code in codes][-1]


def run_handler(request, filename, started):
    module = new_module('__handler__')
    evaluate([compile(request['code'], filename, 'exec', COMPILE_FLAGS, True)], vars(module))
    value = part('handler').call_handler(vars(module).get('handler'), request, started)
    show_figures()
    return value


def new_module(name):
    module = type(sys)(name)
    module.__builtins__ = builtins
    sys.modules[name] = module
    return module


def run(request, kind, started):
    """What `done` is to say, and the exit code of a program."""
    Kernel.cells += 1
    filename = '<handler>' if kind == 'handler' else f'<cell {Kernel.cells}>'
    try:
        request['code'] = request['code'].removeprefix('\ufeff')
        part('imports').remember_source(filename, request['code'])
        apply_environment(request.get('sessionEnv') or {})
        Kernel.replaced_env = apply_environment(request.get('env') or {})
        if kind == 'handler':
            value = interruptible(run_handler, request, filename, started)
            send('{"result":%s}' % result_json(value))
        else:
            interruptible(part('cells').run_cell, request, filename)
        if kind == 'script' and Kernel.loop is not None:
            interruptible(part('async').close_loop)
        return {}, 0
    except SystemExit as error:
        return part('errors').exit_end(error.code, kind)
    except BaseException as error:
        return {'error': part('errors').error_of(error)}, 1


def apply_environment(env):
    """What was set before. None: nothing."""
    replaced = {name: os.environ.get(name) for name in env}
    for name, value in env.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if 'TZ' in env:
        tzset()
    return replaced


def restore_environment():
    replaced, Kernel.replaced_env = Kernel.replaced_env, {}
    try:
        apply_environment(replaced)
    except BaseException:
        pass  # User code has made something else of it.


def print_safely(text):
    try:
        print(text, file=sys.stderr)
    except BaseException:
        pass


# One request after the other


def serve():
    for line in read_lines():
        kind, end, code = serve_one(line)
        send('{"done":%s}' % to_json(end))
        if kind == 'script':
            close_channel()
            Kernel.namespace = None  # What it holds is to be finalized at the end.
            _signal.signal(SIGINT, _signal.default_int_handler)
            raise SystemExit(code)
    flush_streams()
    _exit(0)


def serve_one(line):
    started = monotonic()
    Kernel.is_running, Kernel.is_interrupted, Kernel.displayed_bytes = True, False, 0
    _signal.signal(SIGINT, on_interrupt)  # User code may have set its own.
    kind, code = '', 1
    try:
        request = parse_json(line)['run']
        kind = request['kind']
        end, code = run(request, kind, started)
    except BaseException as error:
        end = {'error': {'name': type(error).__name__, 'message': 'The run could not be completed'}}
    clean_up()
    if getpid() != KERNEL_PID:
        leave_child(end, code)
    if kind == 'code':
        restore_environment()
    Kernel.is_running = False
    return kind, end, code


def leave_child(end, code):
    """A process that user code forked has come to the end of the code: it is no interpreter."""
    if 'error' in end:
        print_safely(end['error'].get('traceback') or end['error']['message'])
    flush_streams()
    _exit(code & 0xFF)


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
        dup2(Kernel.saved_streams[name], fd)
    stream = getattr(sys, name, None)
    if stream is not None and not stream.closed:
        return
    errors = 'backslashreplace' if name == 'stderr' else 'surrogateescape'
    setattr(sys, name, open(fd, 'w', buffering=1, encoding='utf-8', errors=errors, closefd=False))


def refuse_input(_prompt='', /):
    raise InputNotAvailable(
        'input() is not available here: send the data with the code, or as the event of a handler'
    )


def main():
    open_channel()
    _signal.signal(SIGINT, on_interrupt)
    for name, stream in zip(('stdout', 'stderr'), KERNEL_STREAMS):
        stream.reconfigure(encoding='utf-8', errors=stream.errors, line_buffering=True)
        Kernel.saved_streams[name] = copy_descriptor(stream.fileno())
    if not (sys.flags.isolated or getattr(sys.flags, 'safe_path', False)):
        sys.path[0] = ''  # The working directory, not the folder of this file.
    sys.argv = ['']
    os.environ.setdefault('MPLBACKEND', 'Agg')
    builtins.display, builtins.input = display, refuse_input
    Kernel.namespace = vars(new_module('__main__'))
    send('{"ready":true}')
    sys.meta_path.insert(0, part('imports').ImportWatcher)
    part('cells')
    serve()


main()
