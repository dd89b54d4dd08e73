"""Rich results, for python-core.py: loaded with the first one. `kernel` is that file's module."""

import re
import sys
from binascii import b2a_base64

MAX_TEXT_BYTES = 1024 * 1024
MAX_TABLE_ROWS = 1000
MEDIA_TYPE = re.compile(r'[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}', re.ASCII)
MAX_PARTS = 20
TABLE_TYPE = 'application/vnd.ash.table+json'
METHODS = {
    'text/html': '_repr_html_',
    'text/markdown': '_repr_markdown_',
    'text/latex': '_repr_latex_',
    'image/svg+xml': '_repr_svg_',
    'image/png': '_repr_png_',
    'image/jpeg': '_repr_jpeg_',
    'application/json': '_repr_json_',
}

channel, errors, results = kernel.part('channel'), kernel.part('errors'), kernel.part('results')


def make_bundle(value):
    bundle, notes = {}, []

    def attempt(name, make, *arguments):
        try:
            make(*arguments)
        except Exception as error:
            notes.append(f'({name} raised {errors.describe(error)})')

    attempt('its table', add_table, bundle, value)
    if is_figure(value):
        attempt('its picture', add_figure, bundle, value)
    for mime, method in METHODS.items():
        # Looked up on the class: some objects claim to have whatever attribute they are asked for.
        if hasattr(type(value), method):
            attempt(method, lambda: add_part(bundle, mime, getattr(value, method)()))
    if hasattr(type(value), '_repr_mimebundle_'):
        attempt('_repr_mimebundle_', lambda: add_parts(bundle, value._repr_mimebundle_()))
    add_json(bundle, value)
    if 'text/plain' not in bundle:
        attempt('repr', lambda: add_part(bundle, 'text/plain', repr(value)))
    text = bundle.get('text/plain', f'<{type(value).__name__} object>')
    bundle['text/plain'] = '\n'.join([errors.bounded(str(text), MAX_TEXT_BYTES), *notes])
    return bundle


def add_parts(bundle, parts):
    for mime, data in (parts[0] if isinstance(parts, tuple) else parts).items():
        add_part(bundle, str(mime), data)


def add_part(bundle, mime, data):
    if isinstance(data, tuple):
        data = data[0]  # The second is metadata.
    if data is None or len(bundle) >= MAX_PARTS:
        return
    if not MEDIA_TYPE.fullmatch(mime):
        raise ValueError('a media type that is none')
    if isinstance(data, (bytes, bytearray)):
        is_binary = mime.startswith('image/') and 'svg' not in mime
        data = base64_of(data) if is_binary else data.decode()
    channel.to_json(data)  # Raises unless it is JSON.
    bundle[mime] = data


def base64_of(data):
    return b2a_base64(data, newline=False).decode()


def add_json(bundle, value):
    if not isinstance(value, (dict, list, tuple)) or 'application/json' in bundle:
        return
    try:
        results.result_json(value)
        bundle['application/json'] = value
    except Exception:
        pass  # It is shown as text only.


def add_table(bundle, value):
    pandas = sys.modules.get('pandas')
    if pandas is None or not isinstance(value, (pandas.DataFrame, pandas.Series)):
        return
    frame = value if isinstance(value, pandas.DataFrame) else value.to_frame()
    if frame is not value:
        bundle['text/html'] = frame._repr_html_()
    head = frame.head(MAX_TABLE_ROWS)
    columns = [str(column) for column in frame.columns]
    rows = [[table_cell(cell) for cell in row] for row in head.itertuples(index=False, name=None)]
    if not isinstance(frame.index, pandas.RangeIndex):  # Then the labels say something.
        columns = [str(name or 'index') for name in frame.index.names] + columns
        labels = [label if isinstance(label, tuple) else (label,) for label in head.index]
        rows = [[*map(table_cell, label), *row] for label, row in zip(labels, rows)]
    bundle[TABLE_TYPE] = {'columns': columns, 'rows': rows, 'totalRows': len(frame)}


def table_cell(value):
    if type(value).__module__ == 'numpy' and getattr(value, 'ndim', 1) == 0:
        value = value.item()
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None if value != value else str(value)
    return None if type(value).__name__ in ('NaTType', 'NAType') else str(value)


# Figures of matplotlib, which is imported by user code only


def is_figure(value):
    figures = sys.modules.get('matplotlib.figure')
    return figures is not None and isinstance(value, figures.Figure)


def add_figure(bundle, figure):
    png = kernel.with_own_imports(__import__, 'io').BytesIO()
    figure.savefig(png, format='png', bbox_inches='tight')
    bundle['image/png'] = base64_of(png.getvalue())


def close_figure(value):
    pyplot = sys.modules.get('matplotlib.pyplot')
    if pyplot is not None and is_figure(value):
        pyplot.close(value)


def show_figures(*_arguments, **_options):
    """All that are open, in the order in which they were made, and closes them."""
    pyplot = sys.modules['matplotlib.pyplot']
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        try:
            results.display(figure)
        finally:
            pyplot.close(figure)


def show_figure(figure, *_arguments, **_options):
    results.display(figure)


def patch_pyplot(pyplot):
    """The backend that draws to memory has nothing to show by, and says so on stderr."""
    pyplot.show = show_figures
    pyplot.Figure.show = show_figure
