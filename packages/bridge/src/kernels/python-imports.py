"""What user code imports, and its own lines for tracebacks, for python-core.py. `kernel` is that file's module."""

import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident

MAX_SOURCES = 200

Kernel = kernel.Kernel


class ImportWatcher:
    """Changes some modules as user code imports them; importing them here would take too long."""

    watched = {
        'matplotlib.pyplot': lambda module: kernel.part('displays').patch_pyplot(module),
        'linecache': lambda module: fill_linecache(module),
    }

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        is_own = path is None and Kernel.importer == get_ident()
        if not is_own and name not in cls.watched:
            return None
        spec = find_own(name, target) if is_own else find_elsewhere(name, path, target)
        if spec and name in cls.watched and hasattr(spec.loader, '__dict__'):
            run_module = spec.loader.exec_module

            def exec_module(module):
                run_module(module)
                cls.watched[name](module)

            spec.loader.exec_module = exec_module
        return spec


def find_own(name, target):
    """Not by the path of user code, whose first entry is the working directory."""
    return PathFinder.find_spec(name, kernel.KERNEL_PATH, target)


def find_elsewhere(name, path, target):
    finders = [finder for finder in sys.meta_path if finder is not ImportWatcher]
    return next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)


def remember_source(filename, code):
    Kernel.sources[filename] = code
    linecache = sys.modules.get('linecache')
    cached = linecache.cache if linecache else {}
    cached[filename] = cache_entry(filename, code)
    while len(Kernel.sources) > MAX_SOURCES:
        oldest = next(iter(Kernel.sources))
        del Kernel.sources[oldest]
        cached.pop(oldest, None)


def fill_linecache(linecache):
    """Tracebacks have the lines of user code then, also those it makes itself."""
    for filename, code in Kernel.sources.items():
        linecache.cache[filename] = cache_entry(filename, code)


def cache_entry(filename, code):
    return (len(code), None, code.splitlines(True), filename)
