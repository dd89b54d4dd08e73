// node scripts/registry.mjs <folder>: what a server would find in this registry, as JSON. Exits with 1 if it has faults.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { reportFailure } from './lib/steps.mjs'
import { root, UserError } from './lib/workspace.mjs'

const entry = join(root, 'packages', 'server', 'dist', 'index.js')

async function main([dir, ...rest]) {
  if (dir === undefined || rest.length > 0) throw new UserError('Usage: node scripts/registry.mjs <folder>')
  if (!existsSync(entry)) throw new UserError('Ash is not built yet. Run: npm run setup')
  const { inspectRegistry } = await import(pathToFileURL(entry).href)
  const report = await inspectRegistry(process.env, dir).catch(({ message }) => {
    throw new UserError(message)
  })
  process.stdout.write(`${JSON.stringify(report)}\n`)
  process.exitCode = report.faults.length > 0 ? 1 : 0
}

main(process.argv.slice(2)).catch(reportFailure)
