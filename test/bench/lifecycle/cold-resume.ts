import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { unmountBelow } from '@ash-ai/sandbox/testing'
import { runBareNode } from '../support/bare-bwrap.ts'
import { timed } from '../support/timed.ts'
import { alternate } from './alternate.ts'
import { LifecycleLab } from './lifecycle-lab.ts'
import { timesFloor, timesLine, timesTable } from './tables.ts'

const run = promisify(execFile)
const ROUNDS = { rounds: 40, warmUp: 3 }
const RESTORES = { rounds: 4 }
const MOST_TIMES_FLOOR = 1.5

/** Stop and resume: a new sandbox, on the files that are still there or from the store. */
export function coldResume(): Promise<string[]> {
  return LifecycleLab.use({}, async (lab) => {
    const [small, large] = [await lab.create(), await lab.create()]
    await lab.fill(large)
    const stops = (id: string) => () => lab.timePost(`/api/sessions/${id}/stop`)
    const { bare, stop, resume, stopLarge, resumeLarge } = await alternate(ROUNDS, {
      bare: () => timed(runBareNode),
      stop: stops(small),
      resume: () => lab.timeResume(small, 'cold_local'),
      stopLarge: stops(large),
      resumeLarge: () => lab.timeResume(large, 'cold_local'),
    })
    const { copy, restore } = await timeRestores(lab, large)
    return [
      '`POST …/resume` of a stopped session until it is active: sandbox started, bridge ready and configured; the agent SDK',
      'starts with the first turn. The folders of the session are still there and used as they are, so that of the floor',
      '(bare `bwrap node -e 0`, and a copy of the changed bytes) only the first half remains.',
      '',
      ...timesTable(
        timesLine('bare `bwrap node -e 0` (floor)', bare),
        timesLine('**cold resume**', resume, timesFloor(resume, bare, MOST_TIMES_FLOOR)),
        timesLine(
          'cold resume, 1,000 files / 100 MB',
          resumeLarge,
          timesFloor(resumeLarge, bare, MOST_TIMES_FLOOR),
        ),
        timesLine('stop before it', stop),
        timesLine('stop before it, 1,000 files / 100 MB', stopLarge),
      ),
      '',
      'The same 1,000 files with every folder of the session deleted while the server was down: restored from the blobs',
      'of the checkpoint, each verified. Beside it, `cp -a` of the workspace to the same disk.',
      '',
      ...timesTable(timesLine('`cp -a`', copy), timesLine('cold resume with restore', restore)),
    ]
  })
}

async function timeRestores(lab: LifecycleLab, id: string) {
  const { dataDir } = lab.server
  const folder = join(dataDir, 'sandboxes', id)
  const copied = join(dataDir, 'copy')
  return alternate(RESTORES, {
    copy: async () => {
      const ms = await timed(() => run('cp', ['-a', join(folder, 'disk', 'workspace'), copied]))
      await rm(copied, { recursive: true })
      return ms
    },
    restore: async () => {
      await lab.stop('stop')
      await unmountBelow(folder)
      await rm(folder, { recursive: true })
      await lab.server.start()
      return lab.timeResume(id, 'cold_local')
    },
  })
}
