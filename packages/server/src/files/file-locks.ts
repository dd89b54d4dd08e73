const queues = new Map<string, Promise<unknown>>()

/** One after the other for the same key, so that what one has looked at is still so when it acts. */
export async function exclusively<Result>(key: string, work: () => Promise<Result>): Promise<Result> {
  const before = queues.get(key) ?? Promise.resolve()
  const running = before.then(work)
  const settled = running.then(
    () => {},
    () => {},
  )
  queues.set(key, settled)
  try {
    return await running
  } finally {
    if (queues.get(key) === settled) queues.delete(key)
  }
}
