import { readFile } from 'node:fs/promises'
import { table } from '../lifecycle/tables.ts'
import { BarePython } from '../support/bare-python.ts'
import { row } from '../support/samples.ts'
import { ExecuteLab } from './execute-lab.ts'

const KERNELS = 8
const LANGUAGES = ['python', 'javascript'] as const

/** What an interpreter takes that only waits, by its share of what it has in common with others. */
export function memory(): Promise<string[]> {
  return ExecuteLab.use({}, async (lab) => {
    const lines: string[] = []
    const bare = new BarePython()
    await bare.exec('pass')
    lines.push(row('bare `python3` that waits (floor)', 1, mb(await pssKb(bare.pid))))
    bare.close()
    for (const language of LANGUAGES) lines.push(await measure(lab, language))
    return [
      `Proportional set size (Pss) of the interpreters of one session, ${KERNELS} kernels each; no sandbox is counted twice.`,
      '',
      ...table(['interpreter', 'n', 'MB each'], ...lines),
    ]
  })
}

async function measure(lab: ExecuteLab, language: (typeof LANGUAGES)[number]): Promise<string> {
  const { client } = lab.server
  const template = language === 'python' ? 'python' : 'node'
  const { id } = await client.sessions.create({ template })
  for (let n = 0; n < KERNELS; n++)
    await client.sessions.execute(id, { language, code: '1', kernel: `k${n}` })
  const interpreters = (await lab.sandboxProcesses()).filter(({ command }) =>
    command.includes(`${language}-kernel`),
  )
  const sizes = await Promise.all(interpreters.map(({ pid }) => pssKb(pid)))
  await client.sessions.end(id)
  if (sizes.length !== KERNELS) throw new Error(`${sizes.length} interpreters, not ${KERNELS}`)
  return row(`**${language} kernel, idle**`, KERNELS, mb(sizes.reduce((a, b) => a + b, 0) / KERNELS))
}

async function pssKb(pid: number): Promise<number> {
  const [, kb] = /^Pss:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')) ?? []
  return Number(kb)
}

const mb = (kb: number) => (kb / 1024).toFixed(1)
