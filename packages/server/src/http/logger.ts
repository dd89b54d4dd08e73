import { type DestinationStream, type Logger, pino } from 'pino'

/** The server's log. Headers that carry a key, and fields named `secret`, are never written, whoever logs the request. */
export function createLogger(level: string, destination?: DestinationStream): Logger {
  const redact = [
    'authorization',
    '*.authorization',
    'req.headers.authorization',
    'headers["x-api-key"]',
    'req.headers["x-api-key"]',
    'secret',
    '*.secret',
    '*.*.secret',
  ]
  // Lines leave together: one for every request, written by itself, would cost as much as the request.
  const buffered = { sync: false, minLength: 4096, periodicFlush: 100 }
  return pino({ level, redact }, destination ?? pino.destination(buffered))
}
