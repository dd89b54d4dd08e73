/**
 * What is spoken with an interpreter: a Python or JavaScript process that runs code, or a shell that runs one script.
 * Whoever starts one (the bridge inside a sandbox, or the host where no bridge is needed) holds the other end of
 * its descriptor 3. Requests and replies are one JSON object per line; output comes by stdout and stderr.
 */
export const LANGUAGES = ['python', 'javascript', 'shell'] as const
export type Language = (typeof LANGUAGES)[number]

/** Descriptor of an interpreter by which requests come and replies go. */
export const INTERPRETER_FD = 3

/** Longest line either way: a result of 10 MB, and what surrounds it. */
export const MAX_INTERPRETER_LINE_BYTES = 16 * 1024 * 1024
export const MAX_RESULT_BYTES = 10 * 1024 * 1024
/** All rich results of one run together, as JSON. */
export const MAX_RESULTS_BYTES = 10 * 1024 * 1024
/** Of each stream; more is read and dropped, and the run says so. */
export const MAX_RUN_OUTPUT_BYTES = 10 * 1024 * 1024
/** An interrupted run that goes on for longer is killed, and its interpreter with it. */
export const INTERRUPT_GRACE_MS = 2_000

/** What an interpreter is asked to do. */
export interface RunRequest {
  /**
   * `code`: in the interpreter's own namespace, which it keeps; the value of the last expression is the result.
   * `script`: the same, then the interpreter ends as a program does: threads, timers and exit handlers have their time.
   * `handler`: in a namespace of its own; the result is what `handler(event, context)` returns.
   */
  kind: 'code' | 'script' | 'handler'
  code: string
  /** For a handler: JSON text, at most 10 MB. Default `{}`. */
  event?: string
  context?: HandlerContext
  /** Set before the code runs, over what is set already; for `code` only until it has run. */
  env?: Record<string, string>
  /** Set before those, to stay: of a session that an interpreter was started before. */
  sessionEnv?: Record<string, string>
  timeoutMs: number
}

/** What a handler is told about its run. `remainingMs` counts down inside. */
export interface HandlerContext {
  functionName: string
  functionVersion: string
  requestId: string
  logGroupName: string
  logStreamName: string
  memoryLimitMb: number
  invokedFunctionArn: string
  /** Whatever else the caller said of it; such keys are fields of the context, too. */
  custom?: Record<string, unknown>
}

/**
 * Host → interpreter: `{"run":{…RunRequest, "event": the JSON itself}}` in one line. A shell gets the bare script, then
 * the end of its input.
 * Interpreter → host, in this order, each a line:
 * `{"ready":true}` once; then for each run any number of `{"display":MimeBundle}`, the one that shows the value of the
 * last expression with `"value":true` beside it, at most one `{"result":JSON}`, and exactly one `{"done":RunEnd}`.
 */
export interface RunEnd {
  error?: RunError
  /** Of `exit()` in code that an interpreter survives. */
  exitCode?: number
}

/** An exception, as data. */
export interface RunError {
  name: string
  message: string
  /** As the language prints it, without the frames of the interpreter's own files. */
  traceback?: string
}

/** One rich result: media type → text, base64 for images that are not SVG, JSON values for JSON types. */
export type MimeBundle = Record<string, unknown>
export const TABLE_TYPE = 'application/vnd.ash.table+json'

export interface RunMetrics {
  wallMs: number
  /** Of the process and those it started. */
  cpuMs: number
  /** Of the largest of its processes. */
  peakMemoryBytes: number
  ioReadBytes: number
  ioWriteBytes: number
}

/** What became of a run. */
export interface RunOutcome {
  status: 'completed' | 'failed' | 'timeout' | 'cancelled'
  /** JSON text exactly as it came; nobody has looked whether it is JSON. Absent where the run gave none. */
  result?: string
  results: { isValue: boolean; data: MimeBundle }[]
  error?: RunError
  exitCode?: number
  signal?: string
  /** Some output, or rich results, were dropped. */
  truncated: boolean
  metrics: RunMetrics
  /** The interpreter has ended, or was killed: whatever it held is gone. */
  isOver: boolean
}

/** A piece of output, in the order in which it came; text that is not UTF-8 has replacement characters. */
export interface OutputPiece {
  stream: 'stdout' | 'stderr'
  text: string
}
