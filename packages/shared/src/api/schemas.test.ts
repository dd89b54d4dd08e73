import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { AgentDeploy } from './agent-schemas.ts'
import { AgentName, Env, isRelativePath, RelativePath } from './common-schemas.ts'
import { MessageSend } from './message-schemas.ts'
import { AgentConfig, sdkOptions } from './sandbox-settings.ts'
import { SessionCreate } from './session-schemas.ts'

test.each(['../x', '', 'a'.repeat(300), 'ünïcode', 'a/b', 'a b', '.hidden', '-flag', 'a\n', 'a\0b', '..'])(
  'the agent name %j is refused',
  (name) => {
    expect(AgentName.safeParse(name).success).toBe(false)
  },
)

test('a path that is accepted can only lead downwards', () => {
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom('..', '.', '', 'a', 'b c', '\\', '\0', 'é', '...'), { maxLength: 6 }),
      (parts) => {
        const path = parts.join('/')
        if (!isRelativePath(path)) return
        expect(new URL(`file:///root/${path.replaceAll('%', '%25')}`).pathname.startsWith('/root/')).toBe(
          true,
        )
        expect(path.split('/')).not.toContain('..')
      },
    ),
  )
})

test.each(['/etc/passwd', '../x', 'a/../b', './a', 'a//b', 'a/', '', 'a\\b', 'a\0', 'x'.repeat(2000)])(
  'the path %j is refused',
  (path) => {
    expect(RelativePath.safeParse(path).success).toBe(false)
  },
)

describe('bodies', () => {
  const valid = {
    session: { agent: 'a', model: 'm', maxTurns: 3, env: { A: 'b' } },
    message: { content: 'hi', effort: 'low' },
    agent: { name: 'a', files: [{ path: 'CLAUDE.md', content: 'aGk=' }] },
  }

  test('valid ones pass', () => {
    expect(SessionCreate.parse(valid.session)).toEqual(valid.session)
    expect(MessageSend.parse(valid.message)).toEqual(valid.message)
    expect(AgentDeploy.parse(valid.agent)).toEqual(valid.agent)
  })

  test('a field of a type it does not have is refused by name, and never changed into another', () => {
    const schemas = [
      [SessionCreate, valid.session],
      [MessageSend, valid.message],
    ] as const
    const wrong = fc.constantFrom<unknown>(null, Number.NaN, {}, [[]], true, -1, Symbol('x'))
    fc.assert(
      fc.property(fc.constantFrom(...schemas), wrong, fc.nat(), ([schema, body], value, pick) => {
        const names = Object.keys(body)
        const name = names[pick % names.length] ?? ''
        const result = schema.safeParse({ ...body, [name]: value })
        if (result.success) expect(result.data).toHaveProperty(name, value)
        else expect(result.error.issues.map((issue) => issue.path[0])).toContain(name)
      }),
    )
  })

  test('unknown fields and host-only SDK options are refused by name', () => {
    for (const name of ['cwd', 'pathToClaudeCodeExecutable', 'extraArgs', 'hooks', 'colour']) {
      const result = SessionCreate.safeParse({ agent: 'a', [name]: 'x' })
      expect(result.success).toBe(false)
      expect(JSON.stringify(result.error?.issues)).toContain(name)
    }
  })

  test('whatever JSON comes, parsing answers and keeps what it accepts', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (body) => {
        for (const schema of [SessionCreate, MessageSend, AgentDeploy]) {
          const result = schema.safeParse(body)
          if (result.success) expect(result.data).toEqual(body)
          else expect(result.error.issues.length).toBeGreaterThan(0)
        }
      }),
    )
  })
})

test('environment names are names and values hold no NUL', () => {
  expect(Env.safeParse({ 'A=B': 'x' }).success).toBe(false)
  expect(Env.safeParse({ A: 'x\0y' }).success).toBe(false)
  expect(Env.safeParse({ PATH_1: '' }).success).toBe(true)
})

test('what Ash itself decides does not reach the agent SDK', () => {
  const config = { model: 'm', credentials: ['github'], network: 'open', limits: {}, budget: {} }
  expect(sdkOptions(AgentConfig.parse(config))).toEqual({ model: 'm' })
})
