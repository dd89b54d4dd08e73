import { Limits } from '@ash-ai/shared'
import { z } from 'zod'
import { parseInput } from '../../http/validation-error.ts'

const MB_PER = { Mi: 1, Gi: 1024 }

const Cpu = z
  .union([z.number(), z.string().regex(/^\d{1,4}(\.\d{1,3})?$/, 'must be a number of cores such as "1"')])
  .transform(Number)
const Size = z
  .string()
  .regex(/^\d{1,9}(Mi|Gi)$/, 'must be a size such as "512Mi" or "1Gi"')
  .transform((text) => Number.parseInt(text, 10) * MB_PER[text.slice(-2) as keyof typeof MB_PER])

/** Cores, memory and disk as the dialect writes them. */
export const Resources = z.object({
  cpu: Cpu.optional(),
  memory: Size.optional(),
  disk: Size.optional(),
  max_processes: z.number().int().min(32).max(1024).optional(),
})
type Resources = z.infer<typeof Resources>

const SomeLimits = Limits.partial()

/** Throws where they are less than any sandbox has. */
export function toLimits({ cpu, memory, disk, max_processes }: Resources): z.infer<typeof SomeLimits> {
  const limits = {
    ...(cpu !== undefined && { cpus: cpu }),
    ...(memory !== undefined && { memoryMb: memory }),
    ...(disk !== undefined && { diskMb: disk }),
    ...(max_processes !== undefined && { processes: max_processes }),
  }
  return parseInput(SomeLimits, limits, 'resources')
}

export const fromLimits = ({ cpus, memoryMb, diskMb, processes }: Limits) => ({
  cpu: String(cpus),
  memory: formatMb(memoryMb),
  disk: formatMb(diskMb),
  max_processes: processes,
})

const formatMb = (mb: number) => (mb % 1024 === 0 ? `${mb / 1024}Gi` : `${mb}Mi`)
