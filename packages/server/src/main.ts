import { type Config, readConfig } from './config.ts'
import { createLogger } from './http/logger.ts'
import { startServer } from './start-server.ts'

const config = readConfigOrExit()
const log = createLogger(config.logLevel)
const server = await startServer(config, log).catch((error: unknown) => {
  log.fatal({ err: error }, error instanceof Error ? error.message : 'Ash did not start')
  process.exit(1)
})

let isStopping = false
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    if (isStopping) return
    isStopping = true
    log.info({ signal }, 'stopping')
    server.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.fatal({ err: error }, 'did not stop cleanly')
        process.exit(1)
      },
    )
  })
}

function readConfigOrExit(): Config {
  try {
    return readConfig(process.env)
  } catch (error) {
    process.stderr.write(`Ash cannot start:\n${error instanceof Error ? error.message : error}\n`)
    process.exit(2)
  }
}
