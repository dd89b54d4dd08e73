/** Those of the options that are there. */
export function given<T extends object>(options: T): { [Name in keyof T]?: NonNullable<T[Name]> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [Name in keyof T]?: NonNullable<T[Name]> }
}
