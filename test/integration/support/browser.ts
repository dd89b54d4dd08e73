import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Browser, chromium } from 'playwright-core'
import { findBrowser } from '../../../scripts/lib/system-packages.mjs'

const QUIET = [
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

/** Chromium without a window and without the settings of whoever runs the tests. */
export async function startBrowser(args: string[] = []): Promise<Browser> {
  const executablePath = findBrowser()
  if (executablePath === undefined)
    throw new Error('There is no browser: run "node scripts/setup.mjs --test"')
  const home = await mkdtemp(join(tmpdir(), 'ash-browser-'))
  const browser = await chromium.launch({
    executablePath,
    args: ['--disable-gpu', ...QUIET, ...args],
    env: { PATH: '/usr/bin:/bin', HOME: home },
  })
  browser.once('disconnected', () => void rm(home, { recursive: true, force: true }))
  return browser
}
