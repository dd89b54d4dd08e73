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
  return pino({ level, redact }, destination ?? pino.destination({ sync: false }))
}
