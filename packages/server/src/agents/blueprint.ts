import { createHash } from 'node:crypto'
import type { AgentConfig, Limits, Network, Packages } from '@ash-ai/shared'
import type { AgentForSession } from './agent-queries.ts'

/** What a session is made of: an agent version, an environment, or the one in the other. */
export interface Blueprint {
  /** Absent: it runs code only. */
  agent?: Pick<AgentForSession, 'name' | 'version' | 'fingerprint'>
  template?: string | undefined
  /** The agent's files, read-only. */
  dir?: string | undefined
  /** Below what the session says for itself. Limits and network are those under which it is set up. */
  config: AgentConfig
  packages: Packages
  /** Program that runs the first language, where not the usual one. */
  runtime?: string | undefined
  /** Program that Python's packages are installed for, where not python3. */
  python?: string | undefined
  /** Of the agent. */
  env: Record<string, string>
  /** Tells packages from others that are not the agent's own. Absent: there are none. */
  added?: string | undefined
  /** Sandboxes with the same can stand in for each other, as far as files go. */
  fingerprint: string
}

/** What a template and a session bring, beside what the agent has. */
export interface Surroundings {
  agent?: AgentForSession | undefined
  template?: string | undefined
  packages: Packages
  runtime?: string | undefined
  limits?: Partial<Limits> | undefined
  network?: Network | undefined
}

export function makeBlueprint({ agent, template, packages, runtime, ...given }: Surroundings): Blueprint {
  const { limits = agent?.config.limits, network = agent?.config.network } = given
  const all = mergePackages(packages, agent?.packages)
  const python = runtime?.startsWith('python') && hasAny(all.pip) ? runtime : undefined
  const added =
    hasAny(packages.pip) || hasAny(packages.npm) || python ? hashOf([packages, python]) : undefined
  return {
    ...(agent && { agent, dir: agent.dir }),
    template,
    runtime,
    config: { ...agent?.config, ...(limits && { limits }), ...(network && { network }) },
    packages: all,
    python,
    env: agent?.env ?? {},
    added,
    fingerprint: [agent?.fingerprint ?? `template ${template}`, added, runtime].filter(Boolean).join('+'),
  }
}

/** Both, each once. */
export function mergePackages(one: Packages = {}, other: Packages = {}): Packages {
  const merged = (kind: keyof Packages) => [...new Set([...(one[kind] ?? []), ...(other[kind] ?? [])])]
  const [pip, npm] = [merged('pip'), merged('npm')]
  return { ...(pip.length > 0 && { pip }), ...(npm.length > 0 && { npm }) }
}

const hasAny = (specs: string[] | undefined) => specs !== undefined && specs.length > 0

const hashOf = (value: unknown) =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)
