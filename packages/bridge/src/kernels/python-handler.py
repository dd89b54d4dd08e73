"""Handlers, for python-core.py: loaded with the first one. `kernel` is that file's module."""

from time import monotonic

CO_VARARGS = 0x04


def call_handler(handler, request, started):
    if not callable(handler):
        raise kernel.RunFailure(
            'HandlerNotFound',
            'Define a function named handler: def handler(event) or def handler(event, context)',
        )
    context = HandlerContext(request.get('context') or {}, started + request['timeoutMs'] / 1000)
    arguments = (request.get('event', {}), context)[: count_parameters(handler)]
    value = kernel.enter(handler, *arguments)
    return kernel.part('async').settle(value) if hasattr(type(value), '__await__') else value


def count_parameters(handler):
    """0, 1 or 2, where 2 stands for any more."""
    while hasattr(handler, '__code__') and not hasattr(handler, '__func__'):
        if not handler.__code__.co_flags & CO_VARARGS:
            return min(handler.__code__.co_argcount, 2)
        if not hasattr(handler, '__wrapped__'):
            return 2
        handler = handler.__wrapped__  # What a decorator that takes anything decorates knows better.
    return inspect_parameters(handler)


def inspect_parameters(handler):
    inspect = kernel.with_own_imports(__import__, 'inspect')
    try:
        kinds = [parameter.kind for parameter in inspect.signature(handler).parameters.values()]
    except (TypeError, ValueError):
        return 2
    kind = inspect.Parameter
    if kind.VAR_POSITIONAL in kinds:
        return 2
    return min(2, kinds.count(kind.POSITIONAL_ONLY) + kinds.count(kind.POSITIONAL_OR_KEYWORD))


class HandlerContext:
    """What a handler is told about its run. Besides these fields it has those that the caller added."""

    def __init__(self, context, deadline):
        custom = context.get('custom') or {}
        vars(self).update({key: value for key, value in custom.items() if not hasattr(type(self), key)})
        self.function_name = context.get('functionName')
        self.function_version = context.get('functionVersion')
        self.request_id = self.aws_request_id = context.get('requestId')
        self.log_group_name = context.get('logGroupName')
        self.log_stream_name = context.get('logStreamName')
        self.memory_limit_in_mb = context.get('memoryLimitMb')
        self.invoked_function_arn = context.get('invokedFunctionArn')
        self._deadline = deadline

    def get_remaining_time_in_millis(self):
        return max(0, int((self._deadline - monotonic()) * 1000))

    remaining_time_in_millis = property(get_remaining_time_in_millis)
