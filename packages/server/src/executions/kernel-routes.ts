import {
  AshError,
  Kernel,
  KernelCreate,
  KernelName,
  LANGUAGES,
  type Language,
  SessionId,
} from '@ash-ai/shared'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import { z } from 'zod'
import { readRunSettings } from '../sessions/run-settings.ts'
import { getSession } from '../sessions/session-queries.ts'
import { useSession } from '../sessions/session-wake.ts'
import { cancelJob } from './end-execution.ts'
import type { ExecutionDeps } from './executions.ts'
import type { Job } from './job.ts'
import { type Kernels, kernelsOf, type Kernel as LiveKernel } from './kernels.ts'

const Params = z.object({ id: SessionId })
const KernelParams = z.object({ id: SessionId, language: z.enum(LANGUAGES), name: KernelName })
const OneKernel = z.object({ kernel: Kernel })
const Ok = z.object({ ok: z.literal(true) })
const tags = ['code']

/** Interpreters that keep their variables. They end with the sandbox of their session. */
export function registerKernelRoutes(app: FastifyInstance, deps: ExecutionDeps): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.get(
    '/api/sessions/:id/kernels',
    {
      schema: {
        tags,
        summary: 'List the kernels of a session',
        params: Params,
        response: { 200: z.object({ kernels: z.array(Kernel) }) },
      },
    },
    async ({ tenantId, params }) => {
      await getSession(deps.db, tenantId, params.id)
      const live = deps.live.get(params.id)
      const kernels = live ? await kernelsOf(live).list() : []
      return { kernels: kernels.map((kernel) => toKernel(deps, params.id, kernel)) }
    },
  )

  routes.post(
    '/api/sessions/:id/kernels',
    {
      schema: {
        tags,
        summary: 'Start a kernel before its first run',
        params: Params,
        body: KernelCreate,
        response: { 200: OneKernel, 201: OneKernel },
      },
    },
    async ({ tenantId, params, body: { language, name } }, reply) => {
      assertLanguage(await getSession(deps.db, tenantId, params.id), language)
      const { kernel, isNew } = await useSession(deps, tenantId, params.id, (live) =>
        kernelsOf(live).get(language, name),
      )
      return reply.code(isNew ? 201 : 200).send({ kernel: toKernel(deps, params.id, kernel) })
    },
  )

  routes.delete(
    '/api/sessions/:id/kernels/:language/:name',
    {
      schema: {
        tags,
        summary: 'End a kernel, and cancel what runs or waits in it',
        params: KernelParams,
        response: { 200: Ok },
      },
    },
    async ({ tenantId, params }) => {
      await withKernel(deps, tenantId, params, async (kernel, kernels) => {
        await cancelThose(deps, jobsOf(deps, params), 'The kernel was deleted')
        kernels.forget(kernel)
        await kernel.interpreter.stop()
      })
      return { ok: true as const }
    },
  )

  routes.post(
    '/api/sessions/:id/kernels/:language/:name/restart',
    {
      schema: {
        tags,
        summary: 'Begin a kernel anew, without variables; what waits for it stays',
        params: KernelParams,
        response: { 200: OneKernel },
      },
    },
    async ({ tenantId, params }) =>
      withKernel(deps, tenantId, params, async (kernel, kernels) => {
        kernels.forget(kernel)
        for (const job of running(jobsOf(deps, params))) job.cancelReason ??= 'The kernel was restarted'
        await kernel.interpreter.stop()
        const { kernel: next } = await kernels.get(params.language, params.name)
        return { kernel: toKernel(deps, params.id, next) }
      }),
  )

  routes.post(
    '/api/sessions/:id/kernels/:language/:name/interrupt',
    {
      schema: {
        tags,
        summary: 'Stop what runs in a kernel, which keeps its variables',
        params: KernelParams,
        response: { 200: Ok },
      },
    },
    async ({ tenantId, params }) => {
      await withKernel(deps, tenantId, params, () =>
        cancelThose(deps, running(jobsOf(deps, params)), 'The kernel was interrupted'),
      )
      return { ok: true as const }
    },
  )
}

type KernelRef = z.infer<typeof KernelParams>

/** Holds the session, so that the kernel does not go with it meanwhile. Throws `kernel_not_found`. */
async function withKernel<Result>(
  deps: ExecutionDeps,
  tenantId: string,
  { id, language, name }: KernelRef,
  work: (kernel: LiveKernel, kernels: Kernels) => Promise<Result>,
): Promise<Result> {
  await getSession(deps.db, tenantId, id)
  const notFound = new AshError('kernel_not_found', `Session ${id} has no ${language} kernel "${name}"`)
  // A session that sleeps has none, and is not woken to say so.
  if (!deps.live.get(id)) throw notFound
  return useSession(deps, tenantId, id, async (live) => {
    const kernels = kernelsOf(live)
    const kernel = await kernels.find(language, name)
    if (!kernel) throw notFound
    return work(kernel, kernels)
  })
}

const jobsOf = ({ runs }: ExecutionDeps, { id, language, name }: KernelRef) =>
  runs.of(id).filter(({ row }) => row.kernel === name && row.language === language)

const running = (jobs: Job[]) => jobs.filter(({ row }) => row.status === 'running')

/** Those that wait first: none of them is to begin because another ended. */
async function cancelThose(deps: ExecutionDeps, jobs: Job[], reason: string): Promise<void> {
  const waiting = jobs.filter(({ row }) => row.status === 'pending')
  await Promise.allSettled([...waiting, ...running(jobs)].map((job) => cancelJob(deps, job, reason)))
}

function assertLanguage(session: { run_settings: string }, language: Language): void {
  const { languages } = readRunSettings(session)
  if (language !== 'shell' && languages.includes(language)) return
  const kept = languages.filter((each) => each !== 'shell')
  throw new AshError(
    'interpreter_missing',
    `The session has no kernels for ${language}, only for ${kept.join(', ') || 'no language'}`,
  )
}

function toKernel({ runs }: ExecutionDeps, sessionId: string, kernel: LiveKernel): Kernel {
  const { language, name } = kernel
  return {
    name,
    language,
    state: kernel.isBusy ? 'busy' : 'idle',
    waiting: runs.waitingFor({ session_id: sessionId, language, kernel: name }),
    runs: kernel.runs,
    startedAt: new Date(kernel.startedAt).toISOString(),
    lastUsedAt: new Date(kernel.lastUsedAt).toISOString(),
  }
}
