/**
 * For what may take minutes: the first session of an agent version waits for its set-up, a pause for the turn under
 * way and for what has to be saved. Node's `fetch` itself waits 300 s for a reply.
 */
export const LONG_TIMEOUT_MS = 290_000
