export { type Config, readConfig } from './config.ts'
export { createLogger } from './http/logger.ts'
export { type RunningServer, startServer } from './start-server.ts'
