"""What a run has to show, for python-core.py. `kernel` is that file's module."""

import sys

MAX_RESULT_BYTES = MAX_RESULTS_BYTES = 10 * 1024 * 1024
DROPPED = {'text/plain': f'Further results were dropped: together they exceed {MAX_RESULTS_BYTES} bytes.'}

Kernel = kernel.Kernel
channel = kernel.part('channel')


def result_json(value):
    try:
        text = channel.to_json(value)
    except Exception as error:
        fault = kernel.part('errors').find_fault(value, error)
        message = f'The result cannot be written as JSON: {fault}'
        raise kernel.RunFailure('ResultNotSerializable', message) from None
    if len(text) > MAX_RESULT_BYTES or len(channel.encode_text(text)) > MAX_RESULT_BYTES:
        message = f'The result is larger than {MAX_RESULT_BYTES} bytes of JSON'
        raise kernel.RunFailure('ResultTooLarge', message)
    return text


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
    return kernel.part('displays').make_bundle(value)


def show(bundle, is_value=False):
    if not Kernel.is_running or Kernel.displayed_bytes > MAX_RESULTS_BYTES:
        return
    room = MAX_RESULTS_BYTES - Kernel.displayed_bytes
    text = channel.to_json(bundle)
    if is_value and len(text) > room:
        text = channel.to_json({'text/plain': bundle['text/plain']})
    size = len(channel.encode_text(text))
    Kernel.displayed_bytes += size
    if size > room:
        Kernel.displayed_bytes = MAX_RESULTS_BYTES + 1
        channel.send('{"display":%s}' % channel.to_json(DROPPED))
    else:
        channel.send('{"display":%s%s}' % (text, ',"value":true' if is_value else ''))


def show_figures():
    if 'matplotlib.pyplot' in sys.modules:
        kernel.part('displays').show_figures()
