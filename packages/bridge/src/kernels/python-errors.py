"""Exceptions as data, for python-core.py: loaded with the first. `kernel` is that file's module."""

MAX_ERROR_BYTES = 100 * 1024
MAX_DEPTH = 100
MAX_EXIT_CODE = 2**31

Kernel = kernel.Kernel


def error_of(error):
    if isinstance(error, kernel.RunFailure):
        return {'name': error.name, 'message': bounded(str(error))}
    data = {'name': str(type(error).__name__), 'message': message_of(error)}
    try:
        data['traceback'] = bounded(kernel.with_own_imports(format_traceback, error))
    except BaseException:
        data['traceback'] = f'{data["name"]}: {data["message"]}\n'
    return data


def exit_end(reason, kind):
    """Of `exit()`: what `done` says, and the exit code of a program."""
    is_text = reason is not None and not isinstance(reason, int)
    code = 1 if is_text else int(reason or 0)
    if abs(code) >= MAX_EXIT_CODE:
        code &= 0xFF  # All that a process can say.
    if kind == 'handler':
        message = f'The code ended itself with {reason if is_text else code}'
        return {'error': {'name': 'SystemExit', 'message': message[:1000]}}, code
    if is_text:
        kernel.part('streams').print_safely(reason)
    return ({'exitCode': code} if kind == 'code' else {}), code


def describe(error):
    return f'{type(error).__name__}: {message_of(error)}'


def message_of(error):
    try:
        return bounded(f'{error}')
    except BaseException:
        return '<its text could not be made>'


def bounded(text, limit=MAX_ERROR_BYTES):
    data = text.encode('utf-8', 'backslashreplace')
    if len(data) <= limit:
        return text
    head, tail = data[: limit // 2], data[-limit // 2 :]
    return f'{head.decode("utf-8", "ignore")}\n… cut …\n{tail.decode("utf-8", "ignore")}'


def format_traceback(error):
    from traceback import TracebackException

    whole = TracebackException(type(error), error, error.__traceback__)
    waiting = [whole]
    while waiting:
        exception = waiting.pop()
        keep_user_frames(exception)
        groups = getattr(exception, 'exceptions', None) or ()
        related = (exception.__cause__, exception.__context__, *groups)
        waiting += [other for other in related if other is not None]
    return ''.join(whole.format())


def keep_user_frames(exception):
    """From the first frame of user code on, and without those of the kernel."""
    names = [frame.filename for frame in exception.stack]
    first = next((index for index, name in enumerate(names) if name in Kernel.sources), 0)
    own = kernel.KERNEL_FILES
    exception.stack[:] = [frame for frame in exception.stack[first:] if not frame.filename.startswith(own)]
    if not exception.stack:
        exception.stack = None  # Then there is no headline either: a SyntaxError of the code itself.


def find_fault(value, error):
    """Which part of a value is no JSON, and where it is."""
    try:
        return search_fault(value, 'result', ()) or describe(error)
    except Exception:
        return describe(error)


def search_fault(value, path, parents):
    if value is None or isinstance(value, (str, int)):
        return None
    if isinstance(value, float):
        return f'{value!r} at {path}' if value - value != 0 else None
    if not isinstance(value, (dict, list, tuple)):
        return f'{type(value).__name__} at {path}'
    if id(value) in parents:
        return f'{type(value).__name__} at {path} contains itself'
    if len(parents) > MAX_DEPTH:
        return 'it is nested too deeply'
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if not (key is None or isinstance(key, (str, int, float))):
            return f'a key of type {type(key).__name__} at {path}'
        fault = search_fault(item, f'{path}[{repr(key)[:100]}]', (*parents, id(value)))
        if fault:
            return fault
    return None
