import type { ChildProcess } from 'node:child_process'
import type { Duplex } from 'node:stream'
import type { RunUsage } from '@ash-ai/shared'
import type { LimitGroup, ResourceUsage } from '../limits/limit-backend.ts'
import type { InterpreterProcess } from '../provider.ts'
import type { WithOutput } from './output-pipes.ts'
import { countProcesses, listTreeNow } from './process-counters.ts'
import { type Descriptors, streamOf, type WatchedTree, watchTree } from './watch-tree.ts'

/** Turns a spawned child that runs an interpreter into an InterpreterProcess. */
export async function watchInterpreter(
  { child, stdout, stderr }: WithOutput<{ child: ChildProcess }>,
  { channelFd, ...fds }: Descriptors & { channelFd: number },
  group: LimitGroup,
): Promise<InterpreterProcess> {
  const tree = await watchTree(child, fds, group)
  const streams = { stdout, stderr, channel: streamOf(child, channelFd) as Duplex }
  for (const stream of Object.values(streams)) stream.on('error', () => {}) // As its end.
  return {
    ...tree,
    ...streams,
    measure: keepMeasure(tree),
    interrupt: () => tryInterrupt(child, tree.rootPid),
  }
}

/** What was used until now, or until the end. */
function keepMeasure(tree: WatchedTree): () => Promise<RunUsage> {
  let last: RunUsage | undefined
  const take = async (pids: number[], usage: ResourceUsage | undefined) => {
    const counted = countProcesses(pids)
    last = keepLargest(last, usage ? withGroup(counted, usage) : counted)
    return last
  }
  const hasGroup = tree.pids() !== undefined
  void tree.ended.then(({ usage }) => take([tree.rootPid], hasGroup ? usage : undefined))
  return async () => take(tree.pids() ?? listTreeNow(tree.rootPid), hasGroup ? await tree.usage() : undefined)
}

/** The control group knows better, also of processes that are gone; but not of pages that others had read before. */
const withGroup = (counted: RunUsage, { cpuMs, peakMemoryBytes }: ResourceUsage): RunUsage => ({
  ...counted,
  cpuMs,
  peakMemoryBytes: Math.max(counted.peakMemoryBytes, peakMemoryBytes),
})

/** Nothing of it ever shrinks, but of processes that are gone nothing can be read any more. */
function keepLargest(before: RunUsage | undefined, now: RunUsage): RunUsage {
  if (before === undefined) return now
  return {
    cpuMs: Math.max(before.cpuMs, now.cpuMs),
    peakMemoryBytes: Math.max(before.peakMemoryBytes, now.peakMemoryBytes),
    ioReadBytes: Math.max(before.ioReadBytes, now.ioReadBytes),
    ioWriteBytes: Math.max(before.ioWriteBytes, now.ioWriteBytes),
  }
}

/** The group that the interpreter and the first process inside are in; that one does not listen. */
function tryInterrupt(child: ChildProcess, rootPid: number): void {
  if (child.exitCode !== null || child.signalCode !== null) return
  try {
    process.kill(-rootPid, 'SIGINT')
  } catch {
    // Ended meanwhile.
  }
}
