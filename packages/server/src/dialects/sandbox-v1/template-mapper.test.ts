import { DEFAULT_LIMITS } from '@ash-ai/sandbox'
import { expect, test } from 'vitest'
import { toSettings, toV1Template, V1TemplateCreate, V1TemplateUpdate } from './template-mapper.ts'

const given = {
  id: 'science',
  name: 'Data science',
  image_url: 'image:1',
  runtime_type: 'python3.11',
  default_cpu_cores: 0.5,
  default_memory_mb: 512,
  default_timeout: 300,
  default_env_vars: { A: '1' },
  pre_installed_packages: ['numpy', { name: 'pandas', version: '2.1.4' }],
  security_context: { network_enabled: true, max_processes: 64 },
  description: 'For numbers.\n\nAnd tables.',
}

test('a template of the dialect is one of ours', () => {
  expect(toSettings(V1TemplateCreate.parse(given), { languages: ['python', 'shell'] })).toEqual({
    description: 'Data science\n\nFor numbers.\n\nAnd tables.',
    image: 'image:1',
    languages: ['python', 'shell'],
    runtime: 'python3.11',
    limits: { cpus: 0.5, memoryMb: 512, processes: 64 },
    timeout: 300_000,
    env: { A: '1' },
    packages: { pip: ['numpy', 'pandas==2.1.4'] },
    network: 'open',
  })
})

test('what an update does not name stays', () => {
  const before = toSettings(V1TemplateCreate.parse(given), { languages: ['python', 'shell'] })
  const change = V1TemplateUpdate.parse({ name: 'Numbers', default_memory_mb: 256, default_cpu_cores: null })
  expect(toSettings(change, before)).toEqual({
    ...before,
    description: 'Numbers\n\nFor numbers.\n\nAnd tables.',
    limits: { cpus: 0.5, memoryMb: 256, processes: 64 },
  })
})

test('it is shown as it was given, its variables by name', () => {
  const { env: _env, ...settings } = toSettings(V1TemplateCreate.parse(given), {
    languages: ['python', 'shell'],
  })
  const template = {
    ...settings,
    name: 'science',
    languages: settings.languages ?? [],
    env: { A: '***' as const },
    isBuiltIn: false,
  }
  expect(toV1Template(template, DEFAULT_LIMITS, 1_000)).toMatchObject({
    ...given,
    default_env_vars: { A: '***' },
    default_disk_mb: DEFAULT_LIMITS.diskMb,
    pre_installed_packages: ['numpy', 'pandas==2.1.4'],
    is_active: true,
  })
})

test('packages are named by the rules of the installer', () => {
  const create = V1TemplateCreate.parse({ ...given, pre_installed_packages: ['--index-url=http://x'] })
  expect(() => toSettings(create, {})).toThrow('packages.pip.0')
})

test.each(['java17', 'go1.21', 'python2', 'python3;x'])('the runtime %s is refused', (runtime_type) => {
  expect(V1TemplateCreate.safeParse({ ...given, runtime_type }).success).toBe(false)
})
