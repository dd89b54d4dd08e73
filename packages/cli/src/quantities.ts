export const countOf = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`

export function sizeOf(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`
  const [divisor, unit] =
    bytes < 1024 ** 2 ? [1024, 'KB'] : bytes < 1024 ** 3 ? [1024 ** 2, 'MB'] : [1024 ** 3, 'GB']
  return `${(bytes / divisor).toFixed(1)} ${unit}`
}
