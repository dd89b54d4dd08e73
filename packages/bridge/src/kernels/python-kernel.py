"""Starts what runs Python code for Ash: python-core.py beside it. To compile that takes longer than to run it, so what
was compiled when Ash was built is taken where this is the same Python.
"""

import builtins
import sys

# A copy for what is defined from here on: user code may replace what is in the module.
__builtins__ = dict(vars(builtins))


def load_code(name):
    path = __file__.removesuffix('kernel.py') + name
    try:
        with open(f'{path}.{sys.implementation.cache_tag}.pyc', 'rb') as file:
            return read_compiled(file.read())
    except (OSError, ValueError):
        with open(f'{path}.py', encoding='utf-8') as file:
            return compile(file.read(), f'<ash>/{name}.py', 'exec', 0, True)


def read_compiled(data):
    from _frozen_importlib_external import MAGIC_NUMBER
    from marshal import loads

    if data[:4] != MAGIC_NUMBER:
        raise ValueError('of another Python')
    return loads(memoryview(data)[16:])


exec(load_code('core'))
