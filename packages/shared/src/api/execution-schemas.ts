import { z } from 'zod'
import { MAX_RUN_TIMEOUT_MS } from '../constants.ts'
import { EXECUTION_STATUSES } from '../execution-state.ts'
import { LANGUAGES } from '../interpreter.ts'
import { Env, IsoTime, Paging } from './common-schemas.ts'

const MAX_CODE_CHARS = 1024 * 1024

export const LanguageSchema = z.enum(LANGUAGES).meta({ id: 'Language' })

export const KernelName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, 'must be 1 to 64 letters, digits, "-" or "_"')

export const RunTimeout = z.number().int().min(1).max(MAX_RUN_TIMEOUT_MS)

/** What to run, and how; where is said by the path, or by what surrounds it. */
export const Run = z.strictObject({
  code: z.string().min(1, 'must not be empty').max(MAX_CODE_CHARS).optional().describe('Code to run'),
  handler: z
    .string()
    .min(1, 'must not be empty')
    .max(MAX_CODE_CHARS)
    .optional()
    .describe('Code that defines `handler(event)` or `handler(event, context)`, which is called once'),
  language: LanguageSchema.optional().describe('Default: the first language of the template'),
  event: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('For a handler, up to 10 MB. `__timeout` in it is a time-out in seconds'),
  context: z
    .record(z.string(), z.unknown())
    .optional()
    .describe('For a handler: fields of its context, such as `function_name`'),
  timeout: RunTimeout.optional().describe('Milliseconds; default that of the session, else 300,000'),
  env: Env.optional().describe('Variables for this run'),
  kernel: KernelName.optional().describe(
    'Name of the interpreter that keeps its variables; default `default`, one for each language',
  ),
  fresh: z
    .boolean()
    .optional()
    .describe('Run the code in a process of its own, as a program, not in a kernel'),
  retry: z
    .boolean()
    .optional()
    .describe(
      'Run again what crashed through no fault of the code. Default: true unless it runs in a kernel',
    ),
  stream: z
    .boolean()
    .optional()
    .describe('Answer with server-sent events, as with `Accept: text/event-stream`'),
  async: z.boolean().optional().describe('Answer 202 at once; ask for the outcome later'),
})

export const isOneRun = (run: { code?: string | undefined; handler?: string | undefined }) =>
  (run.code === undefined) !== (run.handler === undefined)
export const ONE_RUN = { error: 'must have either `code` or `handler`', path: ['code'] }

export const ExecuteRequest = Run.refine(isOneRun, ONE_RUN).meta({ id: 'ExecuteRequest' })
export type ExecuteRequest = z.infer<typeof ExecuteRequest>

const RunMetricsSchema = z
  .object({
    wallMs: z.number(),
    cpuMs: z.number().describe('Of the process and those it started'),
    peakMemoryBytes: z.number(),
    ioReadBytes: z.number(),
    ioWriteBytes: z.number(),
  })
  .meta({ id: 'RunMetrics' })

export const Artifact = z
  .object({
    path: z.string().describe('Relative to the workspace'),
    size: z.number().int(),
    mimeType: z.string(),
    sha256: z.string().optional().describe('Absent where the file was too large to be kept'),
    isKept: z.boolean().describe('It can be downloaded, also after the session has ended'),
  })
  .meta({ id: 'Artifact' })
export type Artifact = z.infer<typeof Artifact>

const ExecutionErrorSchema = z.object({
  name: z.string(),
  message: z.string(),
  traceback: z.string().optional(),
})

export const Execution = z
  .object({
    id: z.string(),
    sessionId: z.string(),
    status: z.enum(EXECUTION_STATUSES),
    language: LanguageSchema,
    kind: z.enum(['code', 'script', 'handler']),
    kernel: z.string().optional().describe('The interpreter it runs in'),
    isNewKernel: z.boolean().optional().describe('It found no variables of earlier runs'),
    stdout: z.string(),
    stderr: z.string(),
    result: z
      .unknown()
      .describe('What the handler returned, or the value of the last expression, where that is JSON'),
    hasResult: z.boolean().describe('Tells a result of null from none'),
    results: z
      .array(z.object({ isValue: z.boolean(), data: z.record(z.string(), z.unknown()) }))
      .describe('Rich results: media type → text, base64 or JSON'),
    error: ExecutionErrorSchema.optional(),
    exitCode: z.number().int().optional(),
    signal: z.string().optional(),
    truncated: z.boolean().describe('Some output was dropped'),
    artifacts: z.array(Artifact).describe('Files that the run made or changed'),
    artifactsComplete: z.boolean().describe('False where there were more than are listed'),
    metrics: RunMetricsSchema.optional(),
    path: z
      .enum(['reuse', 'warm', 'cold'])
      .optional()
      .describe('Where it ran: what was live already, a spare, or a sandbox started for it'),
    attempt: z.number().int(),
    timeout: z.number().int(),
    createdAt: IsoTime,
    startedAt: IsoTime.optional(),
    finishedAt: IsoTime.optional(),
  })
  .meta({ id: 'Execution' })
export type Execution = z.infer<typeof Execution>

/** In lists: without what may be large. */
export const ExecutionSummary = Execution.omit({
  stdout: true,
  stderr: true,
  result: true,
  results: true,
}).meta({
  id: 'ExecutionSummary',
})
export type ExecutionSummary = z.infer<typeof ExecutionSummary>

export const ExecutionList = Paging.extend({ status: z.enum(EXECUTION_STATUSES).optional() })
export type ExecutionList = z.input<typeof ExecutionList>

export const Kernel = z
  .object({
    name: z.string(),
    language: LanguageSchema,
    state: z.enum(['idle', 'busy']),
    waiting: z.number().int().describe('Runs that wait for it'),
    runs: z.number().int().describe('Runs so far'),
    startedAt: IsoTime,
    lastUsedAt: IsoTime,
  })
  .meta({ id: 'Kernel' })
export type Kernel = z.infer<typeof Kernel>

export const KernelCreate = z
  .strictObject({ name: KernelName.default('default'), language: LanguageSchema.default('python') })
  .meta({ id: 'KernelCreate' })
export type KernelCreate = z.input<typeof KernelCreate>

/** Data of an `execution` entry of the log: how the execution stands now. */
export interface ExecutionEventData {
  executionId: string
  status: (typeof EXECUTION_STATUSES)[number]
  attempt: number
  language: string
  error?: { name: string; message: string }
}

/** Data of an `output` entry of the log. */
export interface OutputEventData {
  executionId: string
  stream: 'stdout' | 'stderr'
  text: string
  /** Of an attempt after the first. */
  attempt?: number
}
