// pnpm check: types, lint, format, import direction, cycles, unused code, and what must not be in the files.
import { runGates } from './lib/gates.mjs'

const { passed, failed } = await runGates()
console.log(`\n${passed} passed, ${failed} failed`)
process.exitCode = failed > 0 ? 1 : 0
