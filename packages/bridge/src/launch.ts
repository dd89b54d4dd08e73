import { loadCompiled } from './compiled-module.ts'

/** The bridge with what V8 has made of it before, which it has beside itself: that starts in less time. */
const program = loadCompiled(`${import.meta.dirname}/compiled/bridge.cjs`)
if (!program) throw new Error('the program of the bridge is missing')
void (program.exports as typeof import('./run-bridge.ts')).runBridge(import.meta.dirname)
