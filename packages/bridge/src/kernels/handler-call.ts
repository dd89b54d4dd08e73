export type Handler = (...given: unknown[]) => unknown
type Callback = (error?: unknown, value?: unknown) => void

/** With its parameters a handler says whether it calls back: then that is its result, or what it promises. */
const CALLBACK_PARAMETERS = 3

/**
 * The value of a handler, which `call` calls with what it is given besides. One that never calls back has come to its
 * end when there is nothing left to wait for: `watchIdle` tells, until the function it returns is called.
 */
export async function callHandler(
  call: Handler,
  parameters: number,
  watchIdle: (onIdle: () => void) => () => void,
): Promise<unknown> {
  if (parameters < CALLBACK_PARAMETERS) return call()
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  const callback: Callback = (error, value) => {
    if (error === null || error === undefined) resolve(value)
    else reject(typeof error === 'string' ? new Error(error) : error)
  }
  const returned = call(callback)
  if (isThenable(returned)) return Promise.race([promise, returned])
  const unwatch = watchIdle(() => resolve(undefined))
  return promise.finally(unwatch)
}

const isThenable = (value: unknown) =>
  typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
