import { Readable } from 'node:stream'
import {
  Agent,
  AgentDeploy,
  AgentName,
  AgentVersion,
  AshError,
  FileEntry,
  FileList,
  Paging,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { listFiles } from '../files/list-files.ts'
import { parseInput } from '../http/validation-error.ts'
import type { WarmSpares } from '../sandboxes/warm-spares.ts'
import { readArchive } from './agent-archive.ts'
import { type DeployRequest, deployAgent, removeAgent } from './agent-deploy.ts'
import type { FolderEntry } from './agent-folder.ts'
import { type AgentStore, getAgent, getAgentForSession, listAgents, listVersions } from './agent-queries.ts'
import { readLocalFolder } from './local-folder.ts'

export interface AgentRouteDeps extends AgentStore {
  /** ASH_ALLOW_PATH_DEPLOY: clients may name a folder on this machine. */
  allowPathDeploy: boolean
  /** Sandboxes kept ready for new sessions. */
  spares?: Pick<WarmSpares, 'renew' | 'forget'>
}

const ARCHIVE_TYPES = ['application/x-tar', 'application/gzip', 'application/x-gzip']

const OfAgent = z.object({ name: AgentName })
const AgentReply = z.object({ agent: Agent })
const ListQuery = Paging.extend({ cursor: AgentName.optional() })
const FilesQuery = FileList.omit({ path: true })
const Ok = z.object({ ok: z.literal(true) })
const tags = ['agents']

/** In a scope of its own, since only here an archive is a valid body. */
export function registerAgentRoutes(app: FastifyInstance, deps: AgentRouteDeps): void {
  app.register((scope, _options, done) => {
    addRoutes(scope, deps)
    done()
  })
}

function addRoutes(scope: FastifyInstance, deps: AgentRouteDeps): void {
  scope.addContentTypeParser(ARCHIVE_TYPES, (_request, payload, done) => done(null, payload))
  const routes = scope.withTypeProvider<ZodTypeProvider>()

  routes.post(
    '/api/agents',
    {
      schema: {
        tags,
        summary: 'Deploy an agent: JSON, or a tar or gzipped tar with ?name=',
        querystring: z.object({ name: AgentName.optional() }),
        response: { 200: AgentReply, 201: AgentReply },
      },
      config: { bodies: { json: AgentDeploy, raw: ARCHIVE_TYPES } },
    },
    async ({ tenantId, body, query }, reply) => {
      const request = body instanceof Readable ? fromArchive(query.name, body) : fromJson(deps, body)
      const { agent, isNew } = await deployAgent(deps, tenantId, request)
      deps.spares?.renew({ tenantId, of: 'agent', name: agent.name })
      return reply.code(isNew ? 201 : 200).send({ agent })
    },
  )

  routes.get(
    '/api/agents',
    {
      schema: {
        tags,
        querystring: ListQuery,
        response: { 200: z.object({ agents: z.array(Agent), nextCursor: z.string().optional() }) },
      },
    },
    async ({ tenantId, query: { limit, cursor } }) =>
      listAgents(deps, tenantId, { limit, ...(cursor !== undefined && { after: cursor }) }),
  )

  routes.get(
    '/api/agents/:name',
    { schema: { tags, params: OfAgent, response: { 200: AgentReply } } },
    async ({ tenantId, params }) => ({ agent: await getAgent(deps, tenantId, params.name) }),
  )

  routes.get(
    '/api/agents/:name/versions',
    { schema: { tags, params: OfAgent, response: { 200: z.object({ versions: z.array(AgentVersion) }) } } },
    async ({ tenantId, params }) => ({ versions: await listVersions(deps.db, tenantId, params.name) }),
  )

  routes.get(
    '/api/agents/:name/files',
    {
      schema: {
        tags,
        summary: 'The files of the newest version',
        params: OfAgent,
        querystring: FilesQuery,
        response: { 200: z.object({ files: z.array(FileEntry), truncated: z.boolean() }) },
      },
    },
    async ({ tenantId, params, query }) => {
      const { dir } = await getAgentForSession(deps, tenantId, params.name)
      return listFiles({ root: dir }, query)
    },
  )

  routes.delete(
    '/api/agents/:name',
    { schema: { tags, params: OfAgent, response: { 200: Ok } } },
    async ({ tenantId, params }) => {
      await removeAgent(deps, tenantId, params.name)
      await deps.spares?.forget({ tenantId, of: 'agent', name: params.name })
      return { ok: true as const }
    },
  )
}

function fromArchive(name: string | undefined, body: Readable): DeployRequest {
  if (name === undefined) throw new AshError('validation_failed', 'name: an archive needs ?name=')
  return { name, entries: readArchive(body) }
}

function fromJson({ allowPathDeploy }: AgentRouteDeps, body: unknown): DeployRequest {
  const { path, files, ...rest } = parseInput(AgentDeploy, body)
  if (path !== undefined && files !== undefined) {
    throw new AshError('validation_failed', 'path: send either files or path, not both')
  }
  if (path === undefined) return { ...defined(rest), name: rest.name, entries: decoded(files ?? []) }
  if (!allowPathDeploy) {
    throw new AshError('forbidden', 'This server takes no folders of its own disk. Send the files.')
  }
  return { ...defined(rest), name: rest.name, entries: readLocalFolder(path) }
}

function* decoded(files: NonNullable<AgentDeploy['files']>): Generator<FolderEntry> {
  for (const { path, content, executable = false } of files) {
    yield { path, isExecutable: executable, content: [Buffer.from(content, 'base64')] }
  }
}

/** Without the keys whose value is undefined. */
function defined<T extends object>(value: T): { [Key in keyof T]?: Exclude<T[Key], undefined> } {
  const entries = Object.entries(value).filter(([, part]) => part !== undefined)
  return Object.fromEntries(entries) as { [Key in keyof T]?: Exclude<T[Key], undefined> }
}
