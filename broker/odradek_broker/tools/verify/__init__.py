"""Is a data directory sound, and if not, what will the next start make of it?"""
