import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { SdkMessage, Session, SessionEvent } from '@ash-ai/sdk'
import { expect } from 'vitest'
import { base64, bash, collect, scripted } from './conversation.ts'
import { eventually } from './sandbox-processes.ts'
import type { TestServer } from './test-server.ts'

const MODEL = 'claude-haiku-4-5'
const SECRET = 'of-the-session-0123456789'
const API_SECRET = 'of-the-credential-0123456789'
const SYSTEM_PROMPT = 'Answer like a zebra.'
/** What an agent and its session set, beside files and conversation. */
const SETTINGS = {
  model: MODEL,
  permissionMode: 'acceptEdits',
  allowedTools: ['Bash'],
  disallowedTools: ['WebSearch'],
  budget: { maxUsd: 40 },
  limits: { memoryMb: 900, processes: 200 },
  checkpoints: { every: 'turn', keep: 20 },
} as const

/** An API outside, for a credential and for the network policy; remembers the keys it was shown. */
export class OutsideApi {
  readonly keys: (string | undefined)[] = []
  readonly #server: Server

  private constructor() {
    this.#server = createServer(({ headers }, response) => {
      this.keys.push(headers.authorization)
      response.end('outside')
    })
  }

  static async start(): Promise<OutsideApi> {
    const api = new OutsideApi()
    await new Promise<void>((ready) => api.#server.listen(0, '127.0.0.1', ready))
    return api
  }

  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}

/**
 * A session that was given everything a session can have. Each turn adds a line to a file of the workspace and of the
 * home directory, and shows whether all that was there before still is.
 */
export class RememberingSession {
  readonly id: string
  readonly #server: TestServer
  readonly #api: OutsideApi
  readonly #created: Session
  readonly #turns: string[]
  /** Without those that a fork took over, which it has not paid for. */
  #ownTurns = 0

  static async create(server: TestServer, api: OutsideApi): Promise<RememberingSession> {
    const { client } = server
    await client.agents.deploy({
      name: 'zebra',
      files: [{ path: 'CLAUDE.md', content: base64('# Zebra\n') }],
      env: { FROM_AGENT: 'agent', FROM_BOTH: 'agent' },
      config: { systemPrompt: { type: 'preset', preset: 'claude_code', append: SYSTEM_PROMPT } },
    })
    await client.credentials.create({
      name: 'outside',
      hosts: [`http://${api.host}`],
      scheme: { type: 'bearer' },
      secret: API_SECRET,
    })
    const created = await client.sessions.create({
      agent: 'zebra',
      env: { FROM_SESSION: SECRET, FROM_BOTH: 'session' },
      credentials: ['outside'],
      network: [api.host],
      ...SETTINGS,
      allowedTools: [...SETTINGS.allowedTools],
      disallowedTools: [...SETTINGS.disallowedTools],
    })
    return new RememberingSession(server, api, created, [])
  }

  private constructor(server: TestServer, api: OutsideApi, created: Session, turns: string[]) {
    this.id = created.id
    this.#server = server
    this.#api = api
    this.#created = created
    this.#turns = [...turns]
  }

  /** Another session that begins as this one is now. */
  async fork(): Promise<RememberingSession> {
    const fork = await this.#server.client.sessions.fork(this.id)
    return new RememberingSession(this.#server, this.#api, fork, this.#turns)
  }

  /** The same, of the checkpoint that followed its latest turn. */
  async forkOfTurn(): Promise<RememberingSession> {
    const { client } = this.#server
    const saved = async () =>
      (await client.checkpoints.list(this.id)).checkpoints.filter(({ reason }) => reason === 'turn')
    // It follows the end of the turn.
    const [newest] = await eventually(saved, ({ length }) => length === this.#ownTurns)
    const fork = await client.sessions.fork(this.id, { checkpointId: newest?.id })
    return new RememberingSession(this.#server, this.#api, fork, this.#turns)
  }

  /** A turn in which the agent finds everything as it was. */
  async expectRemembers(turn: string): Promise<void> {
    this.#turns.push(turn)
    this.#ownTurns++
    const { model, client } = this.#server
    const prompt = `prompt ${turn} ${scripted(bash(look(turn, this.#api.host)), { text: `answer ${turn}` })}`
    const events = await collect(client.sessions.send(this.id, prompt))
    expect(events.at(-1), JSON.stringify(events.at(-1))).toMatchObject({
      type: 'done',
      stopReason: 'end_turn',
    })
    const request = model.requests.findLast(({ prompt }) => prompt.includes(`prompt ${turn} `))
    if (!request) throw new Error('the model was not asked')
    expect(this.#seenBy(request.toolResult)).toEqual(this.#expected())
    expect(request.prompts.map(wordAfter('prompt'))).toEqual(this.#turns)
    const answers = request.body.messages.filter(({ role }) => role === 'assistant')
    const said = JSON.stringify(answers)
    for (const earlier of this.#turns.slice(0, -1)) expect(said).toContain(`answer ${earlier}`)
    expect(request.model).toBe(MODEL)
    expect(request.system).toContain(SYSTEM_PROMPT)
    expect(request.tools).not.toContain('WebSearch')
    expect(initOf(events)).toMatchObject({ permissionMode: SETTINGS.permissionMode, model: MODEL })
    expect(this.#api.keys.splice(0)).toEqual([`Bearer ${API_SECRET}`, undefined])
    await this.#expectSettings()
  }

  async #expectSettings(): Promise<void> {
    const { agentName, agentVersion, config, limits, network, budget, credentials, checkpoints, env } =
      this.#created
    const now = await this.#server.client.sessions.get(this.id)
    // A request for the tool, and one for the answer.
    expect(now.usage.requests).toBe(2 * this.#ownTurns)
    const kept = { agentName, agentVersion, config, limits, network, budget, credentials, checkpoints, env }
    expect(now).toMatchObject({ status: 'active', ...kept })
  }

  #expected(): Record<string, unknown> {
    return {
      workspace: this.#turns,
      home: this.#turns,
      env: `agent session ${SECRET}`,
      mode: '-rwxr-x--- link -> notes',
      credential: 'outside',
      allowed: 'outside',
      denied: '403',
    }
  }

  #seenBy(toolResult: string): Record<string, unknown> {
    const [workspace = '', home = '', env, mode, credential, allowed, denied] = toolResult.split('\n')
    return { workspace: workspace.split(' '), home: home.split(' '), env, mode, credential, allowed, denied }
  }
}

/** One line for each thing that is looked at. */
const look = (turn: string, host: string) =>
  [
    `echo ${turn} >> notes; echo ${turn} >> ~/.notes; ln -sf notes link; chmod 750 notes`,
    'paste -sd" " notes; paste -sd" " ~/.notes',
    'echo $FROM_AGENT $FROM_BOTH $FROM_SESSION',
    'echo $(stat -c %A notes) $(stat -c %N link | tr -d "\'")',
    'curl -sS -m 10 http://outside.credentials.ash/; echo',
    `no_proxy= NO_PROXY= curl -sS -m 10 http://${host}/; echo`,
    'no_proxy= NO_PROXY= curl -sS -m 10 -o /dev/null -w "%{http_code}" http://127.0.0.1:1/',
  ].join('\n')

const wordAfter = (word: string) => (text: string) => new RegExp(`${word} (\\S+)`).exec(text)?.[1]

const initOf = (events: SessionEvent[]) =>
  events.flatMap((event) => (event.type === 'message' ? event.message : [])).find(isInit)

const isInit = ({ type, subtype }: SdkMessage) => type === 'system' && subtype === 'init'
