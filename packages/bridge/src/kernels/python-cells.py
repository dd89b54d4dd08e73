"""Code that keeps its variables, for python-core.py. `kernel` is that file's module."""

import _ast

FUTURE_FLAGS = 0x1FE0000

Kernel = kernel.Kernel
results = kernel.part('results')


def run_cell(request, filename):
    code, flags = request['code'], kernel.COMPILE_FLAGS | Kernel.futures
    tree = compile(code, filename, 'exec', _ast.PyCF_ONLY_AST | flags, True)
    last = tree.body[-1] if tree.body else None
    has_value = isinstance(last, _ast.Expr) and not ends_in_semicolon(code, last)
    if has_value:
        tree.body.pop()
    codes = [compile(tree, filename, 'exec', flags, True)]
    Kernel.futures |= codes[0].co_flags & FUTURE_FLAGS
    if has_value:
        codes.append(compile(_ast.Expression(last.value), filename, 'eval', flags | Kernel.futures, True))
    show_value(kernel.evaluate(codes, Kernel.namespace))


def ends_in_semicolon(code, last):
    lines = code.replace('\r\n', '\n').replace('\r', '\n').split('\n')[last.end_lineno - 1 :]
    lines[0] = lines[0].encode()[last.end_col_offset :].decode()
    return '\n'.join(lines).lstrip(' \t\f\\\n').startswith(';')


def show_value(value):
    bundle = None if value is None else results.bundle_of(value)
    if bundle and 'image/png' in bundle:
        kernel.part('displays').close_figure(value)  # Shown once: as the value.
    results.show_figures()
    if bundle is None:
        return
    results.show(bundle, is_value=True)
    try:
        kernel.part('channel').send('{"result":%s}' % results.result_json(value))
    except kernel.RunFailure:
        pass  # What is shown of it has to do.
