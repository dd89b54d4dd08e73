"""Runs Python code for Ash, started by python-kernel.py. Requests come by descriptor 3 and replies go there, one JSON
object a line; see packages/shared/src/interpreter.ts. The code is hostile: whatever is needed after it ran is held
privately here and in its parts. It has to start fast, so only modules that need no file are imported, and parts that
not every run needs are loaded late.
"""

import builtins
import os
import sys

import _ast
import _signal
import _thread
from os import _exit, getpid
from time import monotonic, tzset

SIGINT = 2
COMPILE_FLAGS = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CO_COROUTINE = 0x80
KERNEL_PID = getpid()
KERNEL_FILES = '<ash>/'  # What the names of all its files begin with in a traceback.
KERNEL_MODULE = sys.modules['__main__']  # Kept: with the last reference its globals would go.
KERNEL_PATH = sys.path[1:]  # Without the folder that user code is in.
STANDARD_FOLDER = os.__file__.rpartition('/')[0] + '/'


class Kernel:
    """What is known from one run to the next."""

    channel = -1
    sources = {}  # File name → code, for tracebacks.
    parts = {}
    namespace = {}
    importer = None  # The thread in which the kernel itself imports something.
    cells = 0
    futures = 0  # Compiler flags: what a cell imports from __future__ holds for the later ones.
    replaced_env = {}  # Name → value before this run, None where there was none.
    loop = None
    task = None  # Of the code that is awaited now.
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


channel, results, streams = part('channel'), part('results'), part('streams')


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
    results.show_figures()
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
            channel.send('{"result":%s}' % results.result_json(value))
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


# One request after the other


def serve():
    for line in channel.read_lines():
        kind, end, code = serve_one(line)
        channel.send('{"done":%s}' % channel.to_json(end))
        if kind == 'script':
            channel.close_channel()
            Kernel.namespace = None  # What it holds is to be finalized at the end.
            _signal.signal(SIGINT, _signal.default_int_handler)
            raise SystemExit(code)
    streams.flush_streams()
    _exit(0)


def serve_one(line):
    started = monotonic()
    Kernel.is_running, Kernel.is_interrupted, Kernel.displayed_bytes = True, False, 0
    _signal.signal(SIGINT, on_interrupt)  # User code may have set its own.
    kind, code = '', 1
    try:
        request = channel.parse_json(line)['run']
        kind = request['kind']
        end, code = run(request, kind, started)
    except BaseException as error:
        end = {'error': {'name': type(error).__name__, 'message': 'The run could not be completed'}}
    streams.clean_up()
    if getpid() != KERNEL_PID:
        leave_child(end, code)
    if kind == 'code':
        restore_environment()
    Kernel.is_running = False
    return kind, end, code


def leave_child(end, code):
    """A process that user code forked has come to the end of the code: it is no interpreter."""
    if 'error' in end:
        streams.print_safely(end['error'].get('traceback') or end['error']['message'])
    streams.flush_streams()
    _exit(code & 0xFF)


def refuse_input(_prompt='', /):
    raise InputNotAvailable(
        'input() is not available here: send the data with the code, or as the event of a handler'
    )


def main():
    channel.open_channel()
    _signal.signal(SIGINT, on_interrupt)
    streams.open_streams()
    if not (sys.flags.isolated or getattr(sys.flags, 'safe_path', False)):
        sys.path[0] = ''  # The working directory, not the folder of this file.
    sys.argv = ['']
    os.environ.setdefault('MPLBACKEND', 'Agg')
    builtins.display, builtins.input = results.display, refuse_input
    Kernel.namespace = vars(new_module('__main__'))
    channel.send('{"ready":true}')
    sys.meta_path.insert(0, part('imports').ImportWatcher)
    part('cells')
    serve()


main()
