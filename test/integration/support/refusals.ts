import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { ErrorReply } from '@ash-ai/shared'
import { afterEach, beforeEach, expect } from 'vitest'
import { type RawReply, type RawRequest, rawRequest } from './raw-http.ts'
import type { TestServer } from './test-server.ts'

export interface Refusal {
  status: number
  code: ErrorReply['code']
  /** Named in the details. */
  field?: string | undefined
  /** Named in the message. */
  names?: string | undefined
}

/** With the server's key, unless the request brings headers of its own. */
export function request(server: TestServer, raw: RawRequest): Promise<RawReply> {
  const headers = { authorization: `Bearer ${server.apiKey}`, ...raw.headers }
  return rawRequest(server.url, { ...raw, headers })
}

export async function expectRefused(server: TestServer, raw: RawRequest, refusal: Refusal) {
  return expectError(await request(server, raw), refusal)
}

/** The reply has the one form that every error has, and says what was wrong. */
export function expectError(reply: RawReply, { status, code, field, names }: Refusal): ErrorReply {
  expect(reply.headers['content-type']).toMatch(/^application\/json/)
  const error = ErrorReply.strict().parse(JSON.parse(reply.text))
  expect([reply.status, error.code, error.error]).toEqual([status, code, expect.stringMatching(/\w/)])
  expect(error.statusCode).toBe(status)
  expect(error.requestId).toBe(reply.headers['x-request-id'])
  if (field !== undefined) {
    expect(error.details?.map(({ path }) => path)).toContain(field)
    expect(error.error).toContain(field)
  }
  if (names !== undefined) expect(error.error).toContain(names)
  return error
}

/** Everything a request could have changed: what the API lists and every path in the data directory. */
export async function listEverything({ client, dataDir }: TestServer, sessionId?: string) {
  // With types, or it would follow the links that a test planted.
  const entries = await readdir(dataDir, { recursive: true, withFileTypes: true })
  const paths = entries.map(({ parentPath, name }) => join(parentPath, name))
  return {
    agents: await client.agents.list(),
    sessions: await client.sessions.list(),
    files: sessionId && (await client.files.list(sessionId)),
    messages: sessionId && (await client.sessions.messages(sessionId)),
    paths: paths.filter((path) => !/ash\.db-(wal|shm)$/.test(path)).sort(),
  }
}

/** Of every test around it: whatever it sends, nothing is different afterwards. */
export function expectNothingChanges(find: () => [server: TestServer, sessionId: string]): void {
  let before: unknown
  beforeEach(async () => {
    before = await listEverything(...find())
  })
  afterEach(async () => {
    expect(await listEverything(...find())).toEqual(before)
  })
}

export const post = (path: string, json: unknown): RawRequest => ({ method: 'POST', path, json })

export const invalid = (field?: string, names?: string): Refusal => ({
  status: 400,
  code: 'validation_failed',
  field,
  names,
})
