import { runBridge } from './run-bridge.ts'

/** The bridge as one file. */
void runBridge(import.meta.dirname)
