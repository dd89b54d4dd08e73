import type { AshClient, SessionEvent, Turn } from '@ash-ai/sdk'
import { eventually } from './sandbox-processes.ts'

const CLAUDE_MD = '# Test agent\n\nYou are Zebra, a test agent.\n'

export const base64 = (text: string) => Buffer.from(text).toString('base64')

export async function deployTestAgent(client: AshClient, name = 'zebra', extra: Record<string, string> = {}) {
  const files = Object.entries({ 'CLAUDE.md': CLAUDE_MD, ...extra })
  return client.agents.deploy({ name, files: files.map(([path, text]) => ({ path, content: base64(text) })) })
}

/** A prompt that scripts its own answer at the model: one step for each call of the API. */
export const scripted = (...steps: object[]) => `go\n!script ${JSON.stringify(steps)}`

export async function collect(turn: Turn): Promise<SessionEvent[]> {
  return Array.fromAsync(turn)
}

/** The last event, which says how the turn ended. */
export async function endOf(turn: Turn): Promise<Extract<SessionEvent, { type: 'done' | 'error' }>> {
  const last = (await collect(turn)).at(-1)
  if (last?.type !== 'done' && last?.type !== 'error')
    throw new Error(`the turn ended with ${JSON.stringify(last)}`)
  return last
}

/** A step that calls the agent's shell. */
export const bash = (command: string) => ({ tool: 'Bash', input: { command, description: 'test' } })

/** The log of a session from its beginning to the end of its latest turn. */
export async function readLog(client: AshClient, sessionId: string, turns: number): Promise<SessionEvent[]> {
  const events: SessionEvent[] = []
  let ends = 0
  for await (const event of client.sessions.follow(sessionId)) {
    events.push(event)
    if (event.type === 'done' || event.type === 'error') ends++
    if (ends === turns) break
  }
  return events
}

/** Starts a turn whose tool does not return, and resolves when that tool runs inside the sandbox. */
export async function startEndlessTurn(client: AshClient, sessionId: string): Promise<Turn> {
  const tool = bash('touch running; timeout 60 tail -f /dev/null')
  const turn = client.sessions.send(sessionId, scripted(tool, { text: 'never' }))
  await eventually(
    () => client.files.list(sessionId),
    ({ files }) => files.some((file) => file.path === 'running'),
    20_000,
  )
  return turn
}
