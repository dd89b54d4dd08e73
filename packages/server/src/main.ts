import { type Config, readConfig } from './config.ts'
import { createLogger } from './http/logger.ts'
import { startServer } from './start-server.ts'

const config = readConfigOrExit()
const log = createLogger(config.logLevel)
const starting = startServer(config, log)

let isStopping = false
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (isStopping) return
    isStopping = true
    log.info({ signal }, 'stopping')
    starting.then((server) => server.close()).then(() => process.exit(0), exitWith('did not stop cleanly'))
  })
}
starting.catch(exitWith('did not start'))

function exitWith(what: string): (error: unknown) => void {
  return (error) => {
    log.fatal({ err: error }, error instanceof Error ? error.message : what)
    process.exit(1)
  }
}

function readConfigOrExit(): Config {
  try {
    return readConfig(process.env)
  } catch (error) {
    process.stderr.write(`Ash cannot start:\n${error instanceof Error ? error.message : error}\n`)
    process.exit(2)
  }
}
