import type { AshClient, SessionEvent, Turn } from '@ash-ai/sdk'

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
