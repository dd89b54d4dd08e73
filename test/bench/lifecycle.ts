import { burst } from './lifecycle/burst.ts'
import { checkpoint } from './lifecycle/checkpoint.ts'
import { coldResume } from './lifecycle/cold-resume.ts'
import { fork } from './lifecycle/fork.ts'
import { many } from './lifecycle/many.ts'
import { restart } from './lifecycle/restart.ts'
import { warmCreate } from './lifecycle/warm-create.ts'
import { warmResume } from './lifecycle/warm-resume.ts'
import { runParts } from './support/run-parts.ts'

const PARTS = {
  'warm-resume': warmResume,
  'cold-resume': coldResume,
  checkpoint,
  fork,
  'warm-create': warmCreate,
  burst,
  restart,
  many,
}

/** What it costs that sessions outlive their processes: saved, resumed, forked, kept ready, recovered. */
export async function lifecycle(names: string[]): Promise<string[]> {
  return [...INTRODUCTION, ...(await runParts('lifecycle', PARTS, names))]
}

const INTRODUCTION = [
  'Ash runs whole: HTTP, keys, SQLite, log, bwrap, control groups, bridge, checkpoints on the local disk. No agent SDK is',
  'started unless it says so. Floors run in the same turns, on the same machine.',
]
