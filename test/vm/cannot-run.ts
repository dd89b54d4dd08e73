/** The VM cannot be had here. Says why and what to do; never to be mistaken for a test that passed or failed. */
export class CannotRun extends Error {}
